# SPDX-License-Identifier: Apache-2.0
"""Replies of the daemon, checked against the declaration of their method."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from jetdvfs.daemon.wire.interface import Interface


def check_reply(interface: Interface, method: str, reply: Mapping[str, Any]) -> None:
    """Check a reply of a method.

    Raises:
        msgspec.ValidationError: it has other members than the method declares, or values of other types.
    """
    (kind,) = (known.reply for known in interface.methods if known.name == method)
    # Through text: a figure that JSON has no word for is null there.
    _decoder(kind).decode(msgspec.json.encode(reply, enc_hook=lambda number: number.item()))


@cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(kind)
