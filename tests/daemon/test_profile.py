# SPDX-License-Identifier: Apache-2.0
"""Which profile the daemon takes where none is named."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.errors import InputError
from jetdvfs.daemon.profile import choose_profile


def test_the_running_system_is_not_predicted_by_a_simulated_profile_unless_it_is_named() -> None:
    profile, notes = choose_profile(None, "agx-xavier", running_system=True)
    assert profile is None
    (note,) = notes
    assert note.endswith("measured on a simulated board, configure profile: agx-xavier-sim")
    named, notes = choose_profile("agx-xavier-sim", "agx-xavier", running_system=True)
    assert named is not None and named.identity.simulated and notes == ()


def test_a_file_tree_elsewhere_takes_the_profile_of_its_board() -> None:
    profile, notes = choose_profile(None, "agx-xavier", running_system=False)
    assert profile is not None and profile.identity.board == "agx-xavier" and notes == ()


@pytest.mark.parametrize("running_system", [False, True])
def test_a_board_without_any_profile_has_none_and_nothing_to_complain_of(running_system: bool) -> None:
    assert choose_profile(None, "no-such-board", running_system=running_system) == (None, ())


def test_a_profile_of_another_board_is_refused() -> None:
    with pytest.raises(InputError, match="made for board agx-xavier"):
        choose_profile("agx-xavier-sim", "tx2", running_system=False)
