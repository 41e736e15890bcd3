# SPDX-License-Identifier: Apache-2.0
"""Check the meters of an NVIDIA GPU against the GPU itself: times of kernels, launches, powers and rates.

    python tests/bench/gpu_meters.py --out DIR [--seconds 280] [--networks resnet18,swin_t]

Needs torch with CUDA, torchvision and NumPy; pynvml (nvidia-ml-py) for powers, msgspec for the campaign. Networks of
torchvision with random weights are traced here.

Clocks and limits of the GPU are left as they are. Stages, each written to DIR as it ends:

- ``about``: versions, settings, driver, power limit, clocks, the cost of an event, rates by element type.
- ``networks``: of each network the sum of its kernels as the worker times them, in bursts and in graphs, against the GPU's
  time of its CUDA graph; its eager latency beside host reference work; requests that the worker refused; the launches
  missing from a profiler's trace.
- ``powers``: of some kernels, between ticks of NVML's energy counter, and as the counter reads at any moment.
- ``campaign``: ``jetdvfs-lab collect --meter nvml --quick`` of one network for as long as time is left.

With ``--device cpu`` every stage runs on the processor, to try the script out: without events, graphs and powers.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import io
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jetdvfs.kernels.budget import Account, Budget
from jetdvfs.kernels.decompose import decompose
from jetdvfs.kernels.network import HostOp, KernelInvocation, Network, TensorSpec
from jetdvfs.profiles.adapt.torch_process import TorchProcess
from jetdvfs.profiles.errors import MeasurementError, RequestRefused
from jetdvfs.profiles.lab.measure.meters.cpu import KERNEL_WORKER
from jetdvfs.profiles.lab.measure.meters.kernel_worker import KernelWorker
from jetdvfs.profiles.lab.measure.meters.ticks import CounterReader
from jetdvfs.profiles.lab.traces.comparing import Comparison, compare
from jetdvfs.profiles.lab.traces.kineto import Kineto
from jetdvfs.profiles.lab.traces.reading import read_events

NETWORKS = (
    "resnet18 resnet50 mobilenet_v3_large shufflenet_v2_x1_0 squeezenet1_0 vgg16 densenet121 efficientnet_b0 vit_b_16 swin_t"
)
_LIMITS = {"timings": 60, "seconds": 0.03}
_POWER_S, _IDLE_S, _POWERS = 0.5, 1.0, 24
_INFERENCES = 2
_SUMS = ("sum_ms", "sum_with_events_ms", "sum_with_profiled_ms", "sum_in_graphs_ms")
_KEPT_EVENTS = ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset")


class TimeIsUp(Exception):
    """The script's time limit."""


class GpuEnergy:
    """NVML's energy counter of the first GPU."""

    rails = ("gpu",)

    def __init__(self) -> None:
        import pynvml

        self.library = pynvml
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def read_uj(self) -> dict[str, int]:
        return {"gpu": 1000 * self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle)}

    def since_mj(self, before: Mapping[str, int]) -> dict[str, float]:
        return {"gpu": (self.read_uj()["gpu"] - before["gpu"]) / 1e3}

    def state(self) -> dict[str, Any]:
        """Driver, limit, clocks, temperature and clock event reasons, as far as NVML tells them."""
        nvml, handle, found = self.library, self.handle, dict[str, Any]()
        questions: dict[str, Callable[[], Any]] = {
            "name": lambda: nvml.nvmlDeviceGetName(handle),
            "driver": nvml.nvmlSystemGetDriverVersion,
            "power_limit_mw": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "clock_event_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        }
        for name, question in questions.items():
            with contextlib.suppress(nvml.NVMLError, AttributeError):  # releases of pynvml differ
                value = question()
                found[name] = value.decode() if isinstance(value, bytes) else value
        return found


class Bench:
    """One run of the script.

    Args:
        args: the command line's.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.out, self.cuda = args, args.out, args.device == "cuda"
        self.until_s = time.monotonic() + args.seconds
        self.results: dict[str, Any] = {"device": args.device, "began": time.time(), "networks": {}, "powers": [], "errors": []}
        self.times_ms: dict[Any, float] = {}
        self.in_graphs_ms: dict[Any, float] = {}
        self.kernels: dict[Any, KernelInvocation] = {}
        self.refused: dict[str, str] = {}
        self.asked = 0
        self.energy: GpuEnergy | None = None

    def run(self) -> None:
        """Every stage; what one fails at is noted, and the next goes on."""
        self.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            self.scratch = Path(scratch)
            with TorchProcess(device=self.args.device, threads=1 if self.cuda else 2, worker=KERNEL_WORKER) as self.process:
                self._stage("about", self._about)
                for name in self.args.networks.split(","):
                    self._stage(name, functools.partial(self._network, name))
                self._stage("powers", self._powers)
            self._stage("campaign", self._campaign)
        self._write()

    def _stage(self, name: str, stage: Callable[[], None]) -> None:
        began_s = time.monotonic()
        try:
            if began_s > self.until_s:
                raise TimeIsUp(f"no time left for {name}")
            stage()
        except Exception as error:  # one stage's failure leaves the others
            self.results["errors"].append({"stage": name, "error": f"{type(error).__name__}: {error}"[:600]})
            if not isinstance(error, TimeIsUp):
                traceback.print_exc()
        self.results.setdefault("took_s", {})[name] = round(time.monotonic() - began_s, 2)
        print(f"{name}: {time.monotonic() - began_s:.1f} s, {self.until_s - time.monotonic():.0f} s left", flush=True)
        self._write()

    def _write(self) -> None:
        self.results["summary"] = self.summary()
        (self.out / "gpu_meters.json").write_text(json.dumps(self.results, indent=1))
        rows = [
            {
                "kernel": self.kernels[key].to_json(),
                "ms": took_ms,
                "in_graph_ms": self.in_graphs_ms.get(key),
                "event_us": self.results.get("about", {}).get("event_us"),
            }
            for key, took_ms in self.times_ms.items()
        ]
        (self.out / "kernels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def _about(self) -> None:
        about: dict[str, Any] = dict(self.process.about)
        self.results["about"] = about
        smallest = {"kind": "relu", "inputs": [[1]], "output": [1], "dtype": "float32", "params": {}}
        answer = self.process.ask({"do": "kernel", "kernel": smallest, "timings": 200, "seconds": 0.5})
        about.update(smallest_us=1e3 * answer["ms"], event_us=answer.get("event_us"), runs=answer.get("runs", 1))
        if self.cuda:
            with contextlib.suppress(ImportError):
                self.energy = GpuEnergy()
                about["nvml"] = self.energy.state()
            about["gpu_hz"] = self.process.ask({"do": "gpu_clock"})["gpu_hz"]
        about["rates"] = self.process.ask({"do": "rates"})

    def _network(self, name: str) -> None:
        found: dict[str, Any] = {}
        self.results["networks"][name] = found
        size = self.args.size
        path = self._traced(name, size)
        network = decompose(path, [TensorSpec((1, 3, size, size))], name=name)
        found["launches"] = len(network.launches)
        request = {"path": str(path), "inputs": [{"shape": [1, 3, size, size], "dtype": "float32"}]}
        comparison = self._check_trace(name, network, request, found)
        self._time_kernels(network)
        self._ask_calls(network)
        measured = [self.times_ms.get(launch.signature) for launch in network.launches]
        found["timed"] = sum(took is not None for took in measured)
        found["sum_ms"] = sum(took for took in measured if took is not None)
        about = self.results.get("about", {})
        event_ms = (about.get("event_us") or 0.0) / 1e3 / about.get("runs", 1)
        found["sum_with_events_ms"] = found["sum_ms"] + event_ms * found["timed"]
        profiled = [
            took if took is not None else (seen or 0.0) for took, seen in zip(measured, comparison.measured_ms, strict=True)
        ]
        found["sum_with_profiled_ms"] = sum(profiled)
        found["sum_in_graphs_ms"] = sum(self.in_graphs_ms.get(launch.signature, 0.0) for launch in network.launches)
        kinds: dict[str, list[float]] = {}
        for launch, took, seen in zip(network.launches, measured, comparison.measured_ms, strict=True):
            row = kinds.setdefault(launch.kind, [0, 0, 0.0, 0.0])
            row[0], row[1] = row[0] + 1, row[1] + (took is not None)
            row[2], row[3] = row[2] + (took or 0.0), row[3] + (seen or 0.0)
        found["kinds"] = {
            kind: dict(zip(("launches", "timed", "ms", "profiled_ms"), row, strict=True)) for kind, row in kinds.items()
        }
        eager = self._ask({**request, "do": "network", "timings": 30, "seconds": 0.5}, f"network {name}")
        found.update({f"eager_{key}": eager[key] for key in ("ms", "reference_ms") if eager and key in eager})
        if self.cuda:
            graph = self._ask(
                {**request, "do": "network", "execution": "graph", "timings": 10, "seconds": 0.3}, f"graph {name}"
            )
            if graph:
                found.update(graph_wall_ms=graph["ms"], graph_gpu_ms=graph["gpu_ms"])
                for key in _SUMS:
                    found[f"{key[:-3]}_error"] = found[key] / graph["gpu_ms"] - 1
        path.unlink()

    def _traced(self, name: str, size: int) -> Path:
        import torch
        import torchvision

        options = {"image_size": size} if name.startswith("vit") else {}
        model = getattr(torchvision.models, name)(weights=None, **options).eval()
        path = self.scratch / f"{name}.pt"
        with torch.no_grad():
            torch.jit.trace(model, torch.randn(1, 3, size, size), check_trace=False).save(str(path))
        return path

    def _check_trace(self, name: str, network: Network, request: dict[str, Any], found: dict[str, Any]) -> Comparison:
        """Record inferences with PyTorch's profiler, keep the trace, compare it with the list of launches."""
        import torch

        activity = torch.profiler.ProfilerActivity
        worker = KernelWorker(torch, self.args.device)
        with torch.no_grad():
            run = worker._network_of(request)
            for _ in range(3):
                run()
            worker._wait()
            activities = [activity.CPU, *([activity.CUDA] if self.cuda else [])]
            with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
                for _ in range(_INFERENCES):
                    run()
                    worker._wait()
        raw = self.scratch / "trace.json"
        profiler.export_chrome_trace(str(raw))
        del run, worker
        if self.cuda:
            torch.cuda.empty_cache()
        told = json.loads(raw.read_text())
        events = [event for event in told["traceEvents"] if event.get("cat") in _KEPT_EVENTS]
        data = json.dumps({"schemaVersion": told.get("schemaVersion", 1), "traceEvents": events}).encode()
        (self.out / f"{name}.trace.json.gz").write_bytes(gzip.compress(data))
        taken = Kineto()
        read_events(io.BytesIO(data), Account(Budget()), taken.take)
        comparison = compare(network, taken.calls(), taken.recorder)
        missing = [network.launches[place] for place in comparison.missing]
        found.update(
            inferences=comparison.inferences, missing=len(missing),
            missing_kinds={kind: sum(one.kind == kind for one in missing) for kind in {one.kind for one in missing}},
            missing_launches=[one.to_json() for one in missing[:20]],
            besides={called: round(count, 3) for called, (count, _) in comparison.others.items()},
            profiled_ms=sum(took or 0.0 for took in comparison.measured_ms),
        )  # fmt: skip
        return comparison

    def _time_kernels(self, network: Network) -> None:
        kinds = set(self.process.about["kinds"])
        for launch in network.launches:
            if launch.signature in self.times_ms or launch.kind not in kinds:
                continue
            if time.monotonic() > self.until_s:
                raise TimeIsUp("kernels are left")
            answer = self._ask({"do": "kernel", "kernel": launch.to_json(), **_LIMITS}, f"{launch.kind} {launch.inputs}")
            if answer is not None:
                self.kernels[launch.signature], self.in_graphs_ms[launch.signature] = launch, answer["ms"]
                self.times_ms[launch.signature] = answer.get("burst_ms", answer["ms"])

    def _ask_calls(self, network: Network) -> None:
        """Issue one call of each name, as a campaign does."""
        kinds = set(self.process.about["kinds"])
        each = {call.name if isinstance(call, HostOp) else call.kind: call for call in network.calls}
        for name, call in each.items():
            if isinstance(call, HostOp) or call.kind in kinds:
                made = {"name": call.name} if isinstance(call, HostOp) else call.to_json()
                self._ask({"do": "issue", "calls": [made], "order": [0] * 8, "timings": 5, "seconds": 0.0}, f"issuing {name}")

    def _ask(self, request: dict[str, Any], what: str) -> dict[str, Any] | None:
        self.asked += 1
        try:
            return self.process.ask(request)
        except RequestRefused as refused:
            self.refused[what] = str(refused)
            return None

    def _powers(self) -> None:
        """Some kernels from short to long, the first of them once more at the end."""
        ordered = sorted(self.times_ms, key=lambda key: self.times_ms[key])
        some = ordered[:: max(len(ordered) // _POWERS, 1)][:_POWERS]
        idle = self._idle_mw()
        for turn, key in enumerate([*some, *some[:4]]):
            if time.monotonic() > self.until_s - self.args.campaign_s:
                raise TimeIsUp(f"{turn} of {len(some)} powers were measured")
            kernel = {"kernel": self.kernels[key].to_json(), "graph": True, "do": "repeat"}
            row: dict[str, Any] = {"kernel": kernel["kernel"], "burst_ms": self.times_ms[key], "again": turn >= len(some)}
            if self._ask({**kernel, "seconds": 0.02}, "power") is None:
                continue
            row.update(self._drawn(functools.partial(self.process.ask, {**kernel, "seconds": _POWER_S})))
            row["idle_mw"] = idle
            self.results["powers"].append(row)
        self.results["idle_mw"] = [idle, self._idle_mw()]

    def _idle_mw(self) -> float:
        def rest() -> dict[str, Any]:
            time.sleep(_IDLE_S)
            return {}

        time.sleep(0.3)
        return float(self._drawn(rest).get("mw", 0.0))

    def _drawn(self, run: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The answer, with mean power in mW between ticks of the counter, and as it reads at the beginning and the end."""
        if self.energy is None:
            return dict(run())
        ticks = CounterReader(self.energy)
        before, began_s = ticks.read_uj(), time.monotonic()
        answer = dict(run())
        took_s = time.monotonic() - began_s
        energy_mj, plain_mj = ticks.since_mj(before)["gpu"], self.energy.since_mj(before)["gpu"]
        state = self.energy.state()
        return {
            **answer, "mw": energy_mj / took_s, "plain_mw": plain_mj / took_s, "ticks": ticks.seen, "took_s": took_s,
            **{key: state[key] for key in ("sm_mhz", "clock_event_reasons", "temperature_c") if key in state},
        }  # fmt: skip

    def _campaign(self) -> None:
        """A quick campaign of one network, until time is up; without a GPU that of the processor."""
        from jetdvfs.profiles.lab.measure.gpus import measure_gpu, plan_gpu, workstation
        from jetdvfs.profiles.lab.measure.meters.cpu import TimingLimits
        from jetdvfs.profiles.lab.measure.meters.nvml import installed_library
        from jetdvfs.profiles.lab.measure.processor import (
            MeasuredModel,
            about_s,
            measure_processor,
            plan_processor,
            processor_size,
            this_processor,
        )

        name, size = self.args.campaign, self.args.size
        path, specs = self._traced(name, size), (TensorSpec((1, 3, size, size)),)
        models = [MeasuredModel(path, decompose(path, specs, name=name), specs)]
        patience = TimingLimits(0.05, 0.5, 0.3, 30)
        told: dict[str, Any] = {"network": name}
        self.results["campaign"] = told

        def progress(done: int, total: int, text: str) -> None:
            told.update(done=done, total=total, at=text)
            if time.monotonic() > self.until_s:
                raise TimeIsUp(f"the campaign was at {text}")

        if not self.cuda:
            import sys

            with this_processor(sys.executable, 2) as machine:
                campaign = plan_processor(machine.device, models, machine.process.about["kinds"], processor_size(1))
                found = measure_processor(campaign, models, machine, patience, self.out / "campaign", progress)
        else:
            with workstation(installed_library(), lambda: TorchProcess(device="cuda", threads=1, worker=KERNEL_WORKER)) as gpu:
                campaign = plan_gpu(gpu.device, models, gpu.process.about["kinds"], 1)
                told.update(units=len(campaign.units), hours=about_s(campaign, patience) / 3600)
                found = measure_gpu(campaign, models, gpu, patience, self.out / "campaign", progress)
        found.save(self.out / "campaign.npz")
        told.update(
            rows={name: len(rows) for name, rows in found.tables.items()}, refused=found.environment.get("refused", {}),
            environment={key: value for key, value in found.environment.items() if key != "ran"},
        )  # fmt: skip
        timed, powered = (set(found.tables[name].what.tolist()) for name in ("kernel_ms", "kernel_mw"))
        told["kernels_without_power"] = [found.invocations[what].to_json() for what in sorted(timed - powered)][:40]
        told["kernels"], told["powered"] = len(timed), len(powered)

    def summary(self) -> dict[str, Any]:
        """The figures in short."""
        networks = self.results["networks"]
        found: dict[str, Any] = {
            "asked": self.asked, "refused": len(self.refused), "refusals": self.refused,
            "missing": {name: one.get("missing") for name, one in networks.items()},
        }  # fmt: skip
        for key in (f"{name[:-3]}_error" for name in _SUMS):
            errors = {name: one[key] for name, one in networks.items() if key in one}
            if errors:
                found[key] = {name: round(error, 4) for name, error in errors.items()}
                found[f"mean_{key}"] = round(statistics.fmean(map(abs, errors.values())), 4)
        about = self.results.get("about", {})
        found.update(event_us=about.get("event_us"), rates=about.get("rates"))
        powers = [one for one in self.results["powers"] if "mw" in one]
        if powers:
            found["powers"] = len(powers)
            found["plain_off"] = round(statistics.fmean(abs(one["plain_mw"] / one["mw"] - 1) for one in powers), 4)
            found["in_graphs"] = sum(bool(one.get("graph")) for one in powers)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the meters of an NVIDIA GPU against the GPU itself.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results are written")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=280.0, help="time limit of all stages (default 280)")
    parser.add_argument(
        "--networks", default=",".join(NETWORKS.split()), help="names in torchvision.models, with commas between"
    )
    parser.add_argument("--size", type=int, default=224, help="height and width of the images (default 224)")
    parser.add_argument("--campaign", default="resnet18", help="network of the campaign (default resnet18)")
    parser.add_argument("--campaign-s", type=float, default=60.0, help="time that powers leave for it (default 60)")
    bench = Bench(parser.parse_args())
    try:
        bench.run()
    except MeasurementError as error:
        raise SystemExit(f"gpu_meters: {error}") from error
    print(json.dumps(bench.summary(), indent=1))


if __name__ == "__main__":
    main()
