# SPDX-License-Identifier: Apache-2.0
"""How launches reach the GPU: one by one, as a graph, as an engine; and what a frame takes beside them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from jetdvfs.kernels.cost.execution import memory_use
from jetdvfs.kernels.cost.explain import explain
from jetdvfs.kernels.cost.host import HostModel
from jetdvfs.kernels.cost.model import surface
from jetdvfs.kernels.errors import CostModelError
from jetdvfs.kernels.execution import EXECUTIONS, FrameOverhead
from jetdvfs.kernels.surface import Surface
from jetdvfs.tests.support.profiles.analytic import GRID, board, matmul, network, relu, view

SMALL = network(*(call for _ in range(50) for call in (relu(64), view())))
KNOWN = replace(board(), host=HostModel({"graph": (30.0, 0, 0, 0), "engine": (60.0, 0, 0, 0)}, (0, 10_000.0, 0, 0)))


def test_a_graph_costs_the_host_one_start_however_many_kernels_it_has() -> None:
    eager, graph = surface(SMALL, KNOWN), surface(SMALL, KNOWN, execution="graph")
    kernels_ms = surface(SMALL, KNOWN, "sum").latency_ms
    np.testing.assert_allclose(graph.latency_ms, kernels_ms + 0.030, rtol=1e-5)
    assert (eager.latency_ms > 100 * 0.004).all()  # a hundred calls at the top CPU clock
    twice = surface(network(*SMALL.calls, *SMALL.calls), KNOWN, execution="graph")
    np.testing.assert_allclose(twice.latency_ms, 2 * kernels_ms + 0.030, rtol=1e-5)


HANDED = {"graph": (30.0, 0, 0, 0), "graph.launch": (1.0, 0, 0, 0), "graph.launch.relu": (3.0, 0, 0, 0)}


def test_a_graph_is_handed_over_whole_with_all_gpu_events_of_each_kernel_before_the_first_runs() -> None:
    cost = replace(board(), host=HostModel(HANDED, (0, 10_000.0, 0, 0)))
    half = replace(relu(64), dtype="float16")  # counted with other types until it is known
    mixed = network(relu(1 << 16), matmul(100), half, view())
    kernels_ms = surface(mixed, cost, "sum").latency_ms
    np.testing.assert_allclose(surface(mixed, cost, execution="graph").latency_ms, kernels_ms + 0.037, rtol=1e-5)
    (start,) = (part for part in explain(mixed, cost, GRID.at(0), execution="graph").host if part.name == "graph")
    assert start.host_ms == pytest.approx(0.037)


def test_an_engine_is_handed_over_while_its_kernels_run() -> None:
    calls = {"engine": (30.0, 0, 0, 0), "engine.launch": (1.0, 0, 0, 0)}
    cost = replace(board(), host=HostModel(calls, (0, 10_000.0, 0, 0)))
    heavy = network(*[matmul(1000)] * 20)
    kernels_ms = surface(heavy, cost, "sum").latency_ms
    np.testing.assert_allclose(surface(heavy, cost, execution="engine").latency_ms, kernels_ms + 0.031, rtol=1e-5)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_where_the_gpu_is_the_bottleneck_execution_hardly_matters(execution: str) -> None:
    heavy = network(*[matmul(1000)] * 20)
    found = surface(heavy, KNOWN, execution=execution)
    np.testing.assert_allclose(found.latency_ms, surface(heavy, KNOWN, "sum").latency_ms, rtol=0.03)


def test_launches_of_tensorrt_start_as_an_engine_unless_something_else_is_said() -> None:
    engine = replace(SMALL, runtime="TensorRT")
    assert surface(SMALL, KNOWN).execution == "eager"
    assert surface(engine, KNOWN).execution == "engine"
    assert surface(engine, KNOWN, execution="eager").latency_ms.min() > 5 * surface(engine, KNOWN).latency_ms.min()


def test_what_nobody_measured_is_said_and_less_certain() -> None:
    measured, assumed = surface(SMALL, KNOWN, execution="graph"), surface(SMALL, board(), execution="graph")
    assert measured.execution_note == ""
    assert "was not measured on this board" in assumed.execution_note and "5 us at the top clocks" in assumed.execution_note
    assert (measured.latency_sigma == 0).all() and (assumed.latency_sigma > 0.02).all()
    assert surface(SMALL, board()).execution_note == ""
    assert "PyTorch's" in surface(SMALL, KNOWN, execution="engine").execution_note


def test_kernels_take_longer_by_what_the_hosts_calls_move() -> None:
    # 5 us a call at the top clock; relu takes twice what its traffic takes, so kernels use half of the memory's bandwidth
    alone = board(slowdown=2.0)
    crowded, heavy = replace(alone, host_traffic=0.1), network(*[relu(1 << 20)] * 20, view(), view())
    longer_ms = surface(heavy, crowded).latency_ms - surface(heavy, alone).latency_ms
    top, lowest = 22 * 0.005 * 0.1 * 0.5, 22 * 0.005 * 0.1 * 0.5 * 2
    np.testing.assert_allclose(longer_ms[..., 1], top, rtol=1e-2)
    np.testing.assert_allclose(longer_ms[..., 0], lowest, rtol=1e-2)  # at half of the memory's clock
    assert np.array_equal(surface(heavy, crowded, "sum").latency_ms, surface(heavy, alone, "sum").latency_ms)
    graph = surface(heavy, crowded, execution="graph").latency_ms - surface(heavy, alone, execution="graph").latency_ms
    assert (graph >= 0).all() and (graph < longer_ms / 10).all()


def test_of_what_calls_move_those_kernels_take_most_that_move_most() -> None:
    alone = board(slowdown=2.0)
    mixed = network(*[relu(1 << 20), matmul(1000)] * 10)
    before, after = (explain(mixed, replace(alone, host_traffic=part), GRID.top) for part in (0.0, 0.1))
    added = {part.kernel.kind: part.gpu_ms for part in after.kernels}
    for part in before.kernels:
        added[part.kernel.kind] -= part.gpu_ms
    moved = {part.kernel.kind: part.kernel.bytes for part in before.kernels}
    assert added["relu"] / added["matmul"] == pytest.approx(moved["relu"] / moved["matmul"], rel=0.1)
    assert after.prediction.latency_ms == pytest.approx(after.gpu_ms + after.waited_ms + after.after_ms)


def test_what_a_frame_takes_besides_is_part_of_it() -> None:
    bare = surface(SMALL, KNOWN, execution="graph")
    found = surface(SMALL, KNOWN, execution="graph", frame_overhead=FrameOverhead(host_ms=2.0, copied_bytes=4_000_000))
    added_ms = found.latency_ms - bare.latency_ms
    # The host's work is slower at lower CPU clocks; 8 MB at 10 bytes a cycle take 0.5 ms at 1600 MHz.
    np.testing.assert_allclose(added_ms[-1, :, -1], 2.5)
    np.testing.assert_allclose(added_ms[0, :, -1], 8.5)
    np.testing.assert_allclose(added_ms[-1, :, 0], 3.0)
    assert (found.energy_mj > bare.energy_mj + bare.idle_mw * added_ms / 1e3).all()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CostModelError, match="execution 'captured'; valid: eager, graph, engine"):
        surface(SMALL, KNOWN, execution="captured")
    for host_ms, copied in ((-1.0, 0), (float("nan"), 0), (0.0, -1)):
        with pytest.raises(CostModelError, match="expected"):
            FrameOverhead(host_ms, copied)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_explanation_s_parts_make_up_the_whole_in_every_execution(execution: str) -> None:
    frame_overhead = FrameOverhead(host_ms=1.0)
    explanation = explain(SMALL, KNOWN, GRID.top, execution=execution, frame_overhead=frame_overhead)
    whole = surface(SMALL, KNOWN, execution=execution, frame_overhead=frame_overhead).at(GRID.top)
    assert explanation.prediction == whole and explanation.execution == execution
    together_ms = explanation.gpu_ms + explanation.waited_ms + explanation.after_ms
    assert together_ms == pytest.approx(whole.latency_ms, rel=1e-5)
    assert explanation.idle_mj + explanation.host_mj + explanation.kernels_mj == pytest.approx(whole.energy_mj, rel=1e-5)
    calls = {part.name: part.calls for part in explanation.host}
    assert calls == ({"relu": 50, "view": 50, "beside": 1} if execution == "eager" else {execution: 1, "beside": 1})


def test_a_saved_surface_says_how_it_was_executed() -> None:
    found, file = surface(SMALL, board(), execution="graph"), io.BytesIO()
    found.save(file)
    file.seek(0)
    loaded = Surface.load(file)
    assert (loaded.execution, loaded.execution_note) == (found.execution, found.execution_note)


def test_what_kernels_use_of_the_memory_is_of_those_that_run_longest_and_never_rises_with_its_clock() -> None:
    memory_ms = np.stack([np.full((1, 1, 3), 0.9), np.full((1, 1, 3), 0.1)])
    gpu_ms: NDArray[np.float32] = np.ones((2, 2, 1, 3), np.float32)
    assert memory_use(np.array([1, 1]), gpu_ms, memory_ms) == pytest.approx(0.5)
    assert memory_use(np.array([3, 1]), gpu_ms, memory_ms) == pytest.approx(0.7)
    longer = gpu_ms * np.array([4.0, 1.0, 1.0], np.float32)  # models may err: more use at a higher clock than at a lower one
    used = memory_use(np.array([1, 1]), longer, memory_ms)
    assert used.shape == (2, 3) and (np.diff(used, axis=1) <= 0).all()
    assert memory_use(np.array([1, 1]), gpu_ms / np.float32(100), memory_ms) == pytest.approx(1.0)
