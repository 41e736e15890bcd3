# SPDX-License-Identifier: Apache-2.0
"""Definitions of interfaces: the product's own, those that are none, and replies that keep to them."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.wire import protocol
from jetdvfs.daemon.wire.interface import Interface, InterfaceError, Mismatch, parse
from jetdvfs.tests.support.daemons.echo import DEFINITION


@pytest.mark.parametrize("name", sorted(protocol.DEFINITIONS))
def test_the_product_s_own_definitions_are_valid(name: str) -> None:
    definition = Interface.load(protocol.DEFINITIONS[name])
    assert definition.name == name
    assert definition.methods
    for members in definition.errors.values():
        assert set(members.members) == {"message", "exit_code"}


@pytest.mark.parametrize(
    "text", ["", "interface", "interface a.b\nmethod X(a: int)", "interface a.b\ntype T (a: Unknown)", "interface a.b\n%"]
)
def test_a_definition_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InterfaceError):
        parse(text)


def test_a_reply_that_the_definition_does_not_promise_is_found() -> None:
    definition = parse(DEFINITION)
    definition.check_reply("Sum", {"sum": 1.5})
    with pytest.raises(Mismatch, match="sum"):
        definition.check_reply("Sum", {"sum": "1.5"})
