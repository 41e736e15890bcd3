# SPDX-License-Identifier: Apache-2.0
"""Boards whose simulated chip is their own; others share the chip that their description names."""

from __future__ import annotations

from jetdvfs.profiles.board import list_boards, load_board

OWN_CHIPS = tuple(name for name in list_boards() if load_board(name).raw.get("twin", {}).get("silicon", name) == name)
