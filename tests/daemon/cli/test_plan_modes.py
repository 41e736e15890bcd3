# SPDX-License-Identifier: Apache-2.0
"""``jetdvfs plan --modes``: the smallest power mode that is enough, on boards whose costs are formulas and on shipped ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from jetdvfs.daemon.cli import main
from jetdvfs.daemon.errors import TargetNotAttainable
from jetdvfs.daemon.planning.modes import GIB, ModeChoice, a100_slice, evaluated_modes, smallest
from jetdvfs.daemon.planning.targets import TargetBound
from jetdvfs.kernels.cost.model import surface
from jetdvfs.profiles.board import BoardDescription, GpuSlice, GpuSlices, ModeSet, PowerMode, load_board
from jetdvfs.profiles.reference import reference_model
from jetdvfs.tests.support.profiles.analytic import board, conv2d, network

SURFACE = surface(network(*[conv2d()] * 40), board())
LOW = PowerMode(1, "LOW", 2, gpu_hz=400_000_000, masks={"tpc_pg_mask": 0})
HALF = PowerMode(2, "HALF", 4, masks={"tpc_pg_mask": 3})
FULL = PowerMode(0, "FULL", 4, masks={"tpc_pg_mask": 0})
MODES = ModeSet("standard", "by hand", 0, (FULL, LOW, HALF))
BOARD: BoardDescription = load_board("agx-xavier")
RESNET = (str(reference_model("resnet18")), "--input", "1x3x224x224")


def judged(*bounds: TargetBound, **more: Any) -> dict[str, ModeChoice]:
    return {choice.name: choice for choice in evaluated_modes(SURFACE, more.pop("board", BOARD), MODES, bounds, **more)}


def test_a_mode_is_judged_at_its_highest_clocks() -> None:
    found = judged()
    for name, gpu in (("LOW", 1), ("FULL", -1)):
        assert found[name].latency_ms == SURFACE.latency_ms[-1, gpu, -1]
        assert found[name].power_mw == SURFACE.power_mw[-1, gpu, -1]
        assert found[name].configuration.gpu_hz == SURFACE.grid.gpu_hz[gpu]


def test_the_mode_that_draws_least_is_advised_of_those_that_are_enough() -> None:
    slow, fast = judged()["LOW"].latency_ms, judged()["FULL"].latency_ms
    assert smallest(list(judged(TargetBound("latency_ms", slow)).values())).name == "LOW"
    assert smallest(list(judged(TargetBound("latency_ms", fast)).values())).name == "FULL"
    assert smallest(list(judged(fps=1e3 / fast * 0.99).values())).name == "FULL"
    with pytest.raises(TargetNotAttainable, match=r"the fastest, FULL, lacks: latency .* over"):
        smallest(list(judged(TargetBound("latency_ms", fast * 0.99)).values()))


def test_every_bound_counts() -> None:
    power = judged()["LOW"].power_mw
    found = judged(TargetBound("latency_ms", judged()["FULL"].latency_ms), TargetBound("power_mw", power))
    assert not any(choice.enough for choice in found.values())
    assert "power" in found["FULL"].lacking[0] and "latency" in found["LOW"].lacking[0]


def test_half_a_gpu_is_taken_to_be_half_as_fast_and_to_draw_no_less() -> None:
    found = judged()
    assert found["HALF"].gpu_share == 0.5 and found["LOW"].gpu_share == 1
    assert found["HALF"].latency_ms == 2 * found["FULL"].latency_ms
    assert found["HALF"].power_mw == found["FULL"].power_mw


def test_paced_power_is_that_of_the_period_and_never_more_than_of_work() -> None:
    fps = 1e3 / judged()["FULL"].latency_ms / 4
    found = judged(fps=fps)
    assert found["FULL"].power_mw == pytest.approx(SURFACE.energy_per_frame_mj(fps)[-1, -1, -1] * fps)
    assert found["FULL"].power_mw < found["HALF"].power_mw <= judged()["FULL"].power_mw


def test_units_that_nobody_counted_are_not_judged() -> None:
    strange = ModeSet("standard", "by hand", 0, (FULL, PowerMode(3, "OTHER", masks={"gpu_pg_mask": 64, "tpc_pg_mask": 0})))
    other = next(one for one in evaluated_modes(SURFACE, BOARD, strange, []) if one.name == "OTHER")
    assert not other.enough and other.gpu_share is None


def test_a_slice_of_the_gpu_is_a_choice_of_its_own() -> None:
    sliced = msgspec.structs.replace(BOARD, mig=GpuSlices(20, (GpuSlice("1g", 5),)))
    found = judged(board=sliced)
    assert found["FULL, MIG 1g"].latency_ms == pytest.approx(4 * found["FULL"].latency_ms)
    assert "HALF, MIG 1g" not in found


def test_what_does_not_fit_into_memory_is_enough_nowhere() -> None:
    found = judged(memory_bytes=2 * GIB, available_bytes=GIB)
    assert all("memory 2 GiB at least, of 1" in choice.lacking for choice in found.values())
    assert all(choice.enough for choice in judged(memory_bytes=2 * GIB, available_bytes=0).values())


def test_confidence_judges_by_what_is_not_exceeded() -> None:
    unsure = surface(network(*[conv2d()] * 40), board(common=0.1))
    plain, sure = (evaluated_modes(unsure, BOARD, MODES, [], confidence=p) for p in (None, 0.95))
    assert all(a.latency_ms < b.latency_ms for a, b in zip(plain, sure, strict=True))


def test_slices_of_an_a100_are_those_of_dippm() -> None:
    # Table 5 of the paper: predicted MB and the slice that was right.
    for mb, name in ((2865, "1g.5gb"), (5952, "2g.10gb"), (6736, "2g.10gb"), (26439, "7g.40gb")):
        assert a100_slice(mb * 1e6) == name
    # And the six networks' measured MB.
    measured = {3272: "1g.5gb", 6294: "2g.10gb", 2944: "1g.5gb", 6156: "2g.10gb", 1652: "1g.5gb", 30996: "7g.40gb"}
    assert {mb: a100_slice(mb * 1e6) for mb in measured} == measured
    assert a100_slice(15e9) == "3g.20gb" and a100_slice(41 * GIB) is None


def test_advise_names_a_mode_for_a_frame_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--modes", *RESNET, "--profile", "agx-xavier-sim", "--fps", "60"]) == 0
    shown = capsys.readouterr().out
    assert (
        "simulated" in shown
        and "enough: MODE_" in shown
        and "sudo jetdvfs board mode" in shown
        and "'jetdvfs hold' would set" in shown
    )
    assert main(["plan", "--modes", *RESNET, "--profile", "agx-xavier-sim", "--fps", "60", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["advised"]["enough"] and data["advised"]["latency_ms"] <= 1e3 / 60
    drawn = [mode["power_mw"] * mode["gpu_share"] for mode in data["modes"]]
    assert drawn == sorted(drawn) and data["memory_bytes"] > 46e6


def test_advise_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("plan", "--modes", *RESNET, "--profile", "agx-xavier-sim")
    for more, code, words in (
        ((), 2, "--target, --fps, or both"),
        (("--fps", "2000"), 4, "no power mode is enough"),
        (("--fps", "30", "--memory-mib", "10"), 4, "memory"),
        (("--fps", "30", "--firmware", "no-such"), 2, "standard"),
    ):
        assert main([*asked, *more]) == code
        assert words in capsys.readouterr().err


def test_the_least_memory_tells_slices_that_are_too_small_and_none_that_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--modes", *RESNET, "--mig", "a100"]) == 0
    out = capsys.readouterr().out
    assert "enough" not in out and "too small: none" in out and "possible: 1g.5gb, 2g.10gb" in out and "--needs-mib" in out
    many = ["plan", "--modes", RESNET[0], "--input", "1200x3x224x224", "--mig", "a100", "--json"]
    assert main(many) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["too_small"] == ["1g.5gb"] and found["slice"] is None


def test_a_measured_need_names_the_smallest_slice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--modes", *RESNET, "--mig", "a100", "--needs-mib", "6294"]) == 0
    assert "enough for 6294 MiB: 2g.10gb" in capsys.readouterr().out
    assert main(["plan", "--modes", *RESNET, "--profile", "agx-xavier-sim", "--fps", "9", "--needs-mib", "1"]) == 2
    assert "--needs-mib needs --mig" in capsys.readouterr().err
    assert main(["plan", "--modes", *RESNET, "--mig", "a100", "--needs-mib", "90000"]) == 4
    assert "no slice" in capsys.readouterr().err
    assert np.isclose(json.loads(_json(capsys, *RESNET))["memory_bytes"], 53.8e6, rtol=0.01)


def _json(capsys: pytest.CaptureFixture[str], *asked: str) -> str:
    assert main(["plan", "--modes", *asked, "--mig", "a100", "--json"]) == 0
    return capsys.readouterr().out
