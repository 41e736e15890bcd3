# SPDX-License-Identifier: Apache-2.0
"""Verbs about a board: its clocks and modes as they are, giving it back by hand, simulating one."""
