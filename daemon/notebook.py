# SPDX-License-Identifier: Apache-2.0
"""The product from Python, without a daemon: load, predict, plan, draw.

    import jetdvfs

    network = jetdvfs.decompose("resnet18.pt", "1x3x224x224")
    profile = jetdvfs.load_profile("agx-xavier-sim")
    surface = profile.surface(network)
    plan = surface.plan("latency_ms=20", confidence=0.95)
    surface.plot(plan)

No clock is touched. Libraries besides numpy and pyyaml are loaded on use: treelite, pandas, matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..kernels.correction.correct import correct
from ..kernels.correction.observation import Correction, Observation
from ..kernels.cost.model import surface as predict
from ..kernels.decompose import decompose as read_model
from ..kernels.execution import EXECUTIONS, NO_OVERHEAD, FrameOverhead
from ..kernels.grid import FrequencyGrid
from ..kernels.inputs import parse_input
from ..kernels.network import Network, TensorSpec
from ..kernels.surface import Surface
from ..kernels.text import needing
from ..kernels.units import METHODS
from ..profiles.board import load_board
from ..profiles.bundle.bundle import Bundle, load_bundle
from ..profiles.errors import BundleError
from .errors import InputError, UsageError
from .planning.limits import Limits, lasting
from .planning.plan import Plan, plan
from .planning.targets import Target, parse_target

__all__ = ["BoardProfile", "BoardSurface", "decompose", "load_profile"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


def decompose(
    path: str | os.PathLike[str],
    inputs: str | Sequence[str | TensorSpec] = (),
    *,
    method: str = "forward",
    optimized: bool = False,
) -> Network:
    """List the kernel invocations of a model file, without running it.

    Args:
        path: a TorchScript, ``torch.export`` or ONNX file.
        inputs: in order or by name, each like ``1x3x224x224``, ``1x128:int64`` or ``sr=16000:int``, unless the file declares
            them.
        method: method of a TorchScript model.
        optimized: launches after the passes of PyTorch's JIT, as ``jetdvfs predict`` takes them.

    Returns:
        The network. If its launch list ends early, ``boundary`` tells where and why.

    Raises:
        KernelsError: the file is no readable model, calls an unknown operator, or does not run on these inputs.

    Examples:
        >>> jetdvfs.decompose("model.pt", "1x3x224x224")
        <network model (1x3x224x224:float32): 68 launches of 7 kinds, 3.64 GFLOP, 117 MB>
    """
    given = [inputs] if isinstance(inputs, str) else inputs
    return read_model(
        path, [parse_input(item) if isinstance(item, str) else item for item in given], method=method, optimized=optimized
    )


def load_profile(name_or_dir: str | os.PathLike[str]) -> BoardProfile:
    """Load a board's profile by its bundle's name (see ``jetdvfs profile list``) or folder.

    Raises:
        BundleError: missing, incomplete, damaged, made for another board, or without measured power.

    Examples:
        >>> profile = jetdvfs.load_profile("agx-xavier-sim")
        >>> profile
        <profile agx-xavier-sim: simulated agx-xavier, 3654 configurations, models of 20 kernel kinds>
        >>> profile.surface(jetdvfs.decompose("model.pt", "1x3x224x224")).plan("latency_ms=20")
        <plan for latency_ms=20: CPU 268.8 MHz, GPU 675.75 MHz, EMC 800.0 MHz, 14.05 ms, 6.073 W, 85.35 mJ>
    """
    bundle = load_bundle(name_or_dir)
    if not bundle.manifest.rails:
        raise BundleError(f"profile {bundle.manifest.name}: power was not measured; 'jetdvfs predict' shows the times it knows")
    return BoardProfile(bundle)


class BoardProfile(Struct, frozen=True, eq=False):
    bundle: Bundle

    @property
    def name(self) -> str:
        return self.bundle.manifest.name

    @property
    def board(self) -> str:
        return self.bundle.manifest.board

    @property
    def simulated(self) -> bool:
        """True if measured on a simulated board: the figures are not a real board's."""
        return self.bundle.manifest.simulated

    @property
    def grid(self) -> FrequencyGrid:
        return self.bundle.manifest.grid

    def surface(
        self,
        network: Network,
        *,
        method: str = METHODS[0],
        temperature_c: float | None = None,
        execution: str | None = None,
        frame_overhead: FrameOverhead = NO_OVERHEAD,
        accept_boundary: str | Collection[str] = (),
    ) -> BoardSurface:
        """Predict latency, power and energy of one inference at every frequency configuration.

        Args:
            network: from :func:`decompose`.
            method: ``timeline`` of host and GPU, or ``sum`` of kernel times, as in MIRAGE (SEC '21).
            temperature_c: die temperature; by default that of the profile's idle power.
            execution: ``eager``, ``graph`` or ``engine`` launches; by default as listed: engine for TensorRT, else eager.
            frame_overhead: frame overhead.
            accept_boundary: operators at which the launch list may end early.

        Raises:
            UsageError: unknown method or execution.
            EndsEarly: the launch list ends early, and not at an accepted operator.
            CostModelError: nothing is launched, a kernel does not fit its model, or the temperature is unknown to the profile.
        """
        if method not in METHODS:
            raise UsageError(f"method {method!r:.80}; valid: {', '.join(METHODS)}")
        if execution is not None and execution not in EXECUTIONS:
            raise UsageError(f"execution {execution!r:.80}; valid: {', '.join(EXECUTIONS)}")
        network.check_whole((accept_boundary,) if isinstance(accept_boundary, str) else tuple(accept_boundary))
        cost = self.bundle.cost if temperature_c is None else self.bundle.cost.warmed(temperature_c)
        predicted = predict(network, cost, method, execution=execution, frame_overhead=frame_overhead)
        figures = asdict(predicted)
        return BoardSurface(**figures, network=network.label, profile=self.name, board=self.board, simulated=self.simulated)

    def __repr__(self) -> str:
        kinds = len(self.bundle.manifest.kinds)
        origin = "simulated " if self.simulated else ""
        return f"<profile {self.name}: {origin}{self.board}, {self.grid.size} configurations, models of {kinds} kernel kinds>"


class BoardSurface(Surface, frozen=True, eq=False):
    """A :class:`~jetdvfs.kernels.surface.Surface` with its origin.

    Attributes:
        profile: name of the profile, with its ``board`` and ``simulated``.
        correction: changes by observations, if corrected.
    """

    network: str = ""
    profile: str = ""
    board: str = ""
    simulated: bool = False
    correction: Correction | None = None

    def correct(self, observations: Sequence[Observation]) -> BoardSurface:
        """The surface corrected by all observations, with the ``correction`` and its reasons.

        Raises:
            CostModelError: no observation.
            GridError: one is not on the surface's grid.
        """
        found = correct(self, observations)
        figures = {name: getattr(found.surface, name) for name in Surface.__struct_fields__}
        return replace(self, **figures, correction=found.correction)

    def plan(
        self,
        target: str | Target,
        *,
        fps: float | None = None,
        confidence: float | None = None,
        limits: Limits | None = None,
        battery_wh: float | None = None,
    ) -> Plan:
        """Choose the frequency configuration that meets a target best.

        Args:
            target: such as ``latency_ms=20`` or ``min-energy``.
            fps: frames per second; each inference must then end within its period, and energy is per frame.
            confidence: probability, 0.5 to below 1, of meeting the target.
            battery_wh: charge left, for a target of hours.

        Raises:
            TargetNotAttainable: no configuration meets the target; the text names the best attainable.
            UsageError: an argument is invalid.
        """
        wanted = parse_target(target) if isinstance(target, str) else target
        return plan(self, wanted, fps=fps, confidence=confidence, limits=lasting(wanted, battery_wh, limits or Limits()))

    def to_dataframe(self) -> DataFrame:
        """One row per configuration, in the grid's order: clocks, figures, sigmas and ``guessed_share``.

        Raises:
            InputError: pandas is missing.
        """
        with needing("data frames", "notebook", InputError):
            import pandas
        axes = {name: np.array(levels) for name, levels in self.grid.to_json().items()}
        columns = dict(zip(axes, (grid.ravel() for grid in np.meshgrid(*axes.values(), indexing="ij")), strict=True))
        figures = ("latency_ms", "power_mw", "energy_mj", "idle_mw", "latency_sigma", "energy_sigma", "guessed_share")
        return pandas.DataFrame(columns | {name: getattr(self, name).ravel() for name in figures})

    def plot(self, plan: Plan | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw latency against energy, a point per configuration, and a plan's target and choice, on ``ax`` or new axes.

        Raises:
            InputError: matplotlib is missing.
        """
        from .cli.pictures import draw_trade_off

        title = f"{self.network} on {load_board(self.board).title}" + (f": target {plan.target}" if plan else "")
        return draw_trade_off(self, plan, ax, title=title, simulated=self.simulated)

    def __repr__(self) -> str:
        low, high = self.latency_ms.min(), self.latency_ms.max()
        least, most = self.energy_mj.min(), self.energy_mj.max()
        origin = "simulated " if self.simulated else ""
        return (
            f"<surface of {self.network} on {origin}{self.board}: {self.grid.size} configurations, "
            f"{low:.3g} to {high:.3g} ms, {least:.3g} to {most:.3g} mJ>"
        )
