# SPDX-License-Identifier: Apache-2.0
"""Frequency configurations as people and programs write them."""

from __future__ import annotations

import pytest

from jetdvfs.daemon.hardware.identity import described_boards
from jetdvfs.kernels.errors import GridError
from jetdvfs.kernels.grid import FrequencyConfiguration, FrequencyGrid, parse_configuration
from jetdvfs.kernels.units import mhz_text
from jetdvfs.profiles.board import BoardDescription

GRID = FrequencyGrid((115200, 1190400, 2265600), (114750000, 905250000, 1377000000), (204000000, 1600000000))


@pytest.mark.parametrize(
    "text",
    ["1190.4,905.25,1600", "1190400,905250000,1600000000", " 1190.4, 905250000 ,1600", "1.1904e3,9.0525e8,1600"],
)
def test_a_configuration_is_in_mhz_or_in_the_units_of_the_board_s_files(text: str) -> None:
    assert parse_configuration(text) == FrequencyConfiguration(1190400, 905250000, 1600000000)


@pytest.mark.parametrize("text", ["", "1,2", "1,2,3,4", "1,2,x", "0,2,3", "-1,2,3", "nan,2,3", "1,inf,3", "1;2;3", "1,,3"])
def test_what_is_no_configuration_is_refused_with_the_form_of_one(text: str) -> None:
    with pytest.raises(GridError, match=r"expected CPU,GPU,EMC in MHz, for instance [\d.,]+, or in kHz,Hz,Hz") as caught:
        parse_configuration(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max", GRID.top),
        (" min ", GRID.configuration((0, 0, 0))),
        ("max,905.25,max", FrequencyConfiguration(GRID.cpu_khz[-1], 905250000, GRID.emc_hz[-1])),
        ("1190.4, min ,max", FrequencyConfiguration(1190400, GRID.gpu_hz[0], GRID.emc_hz[-1])),
    ],
)
def test_a_clock_may_be_the_highest_or_the_lowest_of_the_levels_given(text: str, expected: FrequencyConfiguration) -> None:
    assert parse_configuration(text, GRID.to_json()) == expected
    with pytest.raises(GridError, match=r"expected CPU,GPU,EMC in MHz, .*kHz,Hz,Hz$"):
        parse_configuration(text)


@pytest.mark.parametrize("text", ["max,min", "most", "MAX", "max,x,1"])
def test_other_words_for_a_clock_are_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(
        GridError, match=r"expected CPU,GPU,EMC in MHz, .*kHz,Hz,Hz; each may be max or min, or empty for its governor$"
    ):
        parse_configuration(text, GRID.to_json())
    with pytest.raises(GridError, match="GPU max: no frequency of this clock may be set now"):
        parse_configuration("max", {**GRID.to_json(), "gpu_hz": []})


@pytest.mark.parametrize("board", described_boards(), ids=lambda board: board.name)
def test_every_configuration_of_every_board_reads_back_as_it_is_printed(board: BoardDescription) -> None:
    for configuration in board.grid:
        assert parse_configuration(",".join(map(str, configuration))) == configuration
        assert parse_configuration(",".join(configuration.mhz_texts)) == configuration


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1190.4,900,1600", "GPU 900 MHz is not a frequency of this board; nearest: 114.75 and 905.25 MHz"),
        ("1190.4,1500,1600", "GPU 1500 MHz is not a frequency of this board; nearest: 1377 MHz"),
        ("100,905.25,1600", "CPU 100 MHz is not a frequency of this board; nearest: 115.2 MHz"),
        ("1190.4,905.25,1600000001", "EMC 1600.000001 MHz is not a frequency of this board; nearest: 1600 MHz"),
    ],
)
def test_a_frequency_that_a_board_has_not_is_refused_with_the_nearest_it_has(text: str, says: str) -> None:
    with pytest.raises(GridError) as caught:
        GRID.index(parse_configuration(text))
    assert str(caught.value) == says


def test_a_configuration_prints_in_mhz() -> None:
    assert str(FrequencyConfiguration(1190400, 905250000, 1600000000)) == "CPU 1190.4 MHz, GPU 905.25 MHz, EMC 1600.0 MHz"
    assert str(FrequencyConfiguration(1190400, 0, 1600000000)) == "CPU 1190.4 MHz, GPU without power, EMC 1600.0 MHz"


@pytest.mark.parametrize(
    ("level", "text"),
    [(905_250_000, "905.25"), (7, "less than 0.001"), (0, "0"), (1000, "0.001"), (2**62, "more than 1000000")],
)
def test_a_frequency_is_told_in_mhz_without_exponents(level: int, text: str) -> None:
    assert mhz_text("gpu_hz", level) == text


def test_a_flat_index_is_the_place_in_the_grids_order() -> None:
    grid = FrequencyGrid((1, 2), (10, 20, 30), (5, 6))
    assert [grid.at(cell) for cell in range(grid.size)] == list(grid)
