# SPDX-License-Identifier: Apache-2.0
"""Timeline and sum against layers measured on a Jetson AGX Orin; skipped where the measurements are not at hand."""

from __future__ import annotations

import pytest

from jetdvfs.tests.bench.orin_layers import FILE, Compared, compare, errors, read_layers
from jetdvfs.tests.support.paths import SHARED_DATA

FOLDER = SHARED_DATA / "orin-agx-layers"

pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    if not (FOLDER / FILE).is_file():
        pytest.skip(f"needs {FILE} in {FOLDER}, measured data that is not part of the repository")
    return compare(read_layers(FOLDER))


def test_where_the_host_is_the_bottleneck_only_the_timeline_is_near_what_was_measured(compared: list[Compared]) -> None:
    launch_bound = [item for item in compared if item.layer.batch == 1]
    assert len(launch_bound) > 400
    layer, whole = errors(launch_bound, "timeline")
    assert layer < 0.25 and abs(whole) < 0.15
    layer, whole = errors(launch_bound, "sum")
    assert layer > 1 and whole < -0.5


def test_the_larger_the_batch_the_closer_the_two_come(compared: list[Compared]) -> None:
    ratios = []
    for batch in (1, 4, 16, 64):
        own = [item.predicted_ms for item in compared if item.layer.batch == batch]
        ratios.append(sum(times["timeline"] for times in own) / sum(times["sum"] for times in own))
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 3 and ratios[-1] < 1.2
