# SPDX-License-Identifier: Apache-2.0
"""``plan --compare``: the plan next to every power mode and the top clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from ...kernels.grid import FrequencyConfiguration
from ...kernels.surface import Surface
from ...profiles.board import BoardDescription
from ..planning.modes import highest, modes_of, share_on
from ..planning.plan import Plan, longest_ms, outlook
from . import output

_NOTES = {1.0: "", None: "how much of the GPU it leaves on is not known"}


class SettingRow(Struct, frozen=True):
    """One setting of the board, with energy per frame and mean power over the period if there is a rate."""

    name: str
    configuration: FrequencyConfiguration
    latency_ms: float
    energy_mj: float
    power_mw: float
    late: bool
    battery_h: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "configuration": self.configuration._asdict()}


def compared(surface: Surface, board: BoardDescription, chosen: Plan, battery_wh: float | None) -> list[SettingRow]:
    figures, bounds = outlook(surface, chosen.fps, None), outlook(surface, chosen.fps, chosen.confidence)
    limit_ms = longest_ms(chosen.target, chosen.fps)

    def row(name: str, configuration: FrequencyConfiguration, note: str = "") -> SettingRow:
        index = surface.grid.index(configuration)
        latency_ms, power_mw = float(figures.latency_ms[index]), float(figures.power_mw[index])
        hours = None if battery_wh is None else 1e3 * battery_wh / power_mw
        late = limit_ms is not None and float(bounds.latency_ms[index]) > limit_ms
        return SettingRow(name, configuration, latency_ms, float(figures.energy_mj[index]), power_mw, late, hours, note)

    rows = []
    if board.modes:
        modes = modes_of(board, None)
        for mode in modes.table:
            note = _NOTES.get(share_on(mode.masks, modes), "a part of the GPU is off, which is not predicted")
            rows.append(row(f"nvpmodel {mode.name}", highest(surface.grid, mode), note))
    rows.append(row("MAXN + jetson_clocks", surface.grid.top))
    rows.append(row("jetdvfs", chosen.configuration))
    return rows


def table(rows: Sequence[SettingRow], *, per_frame: bool) -> str:
    battery = any(one.battery_h is not None for one in rows)
    headers = ["", "clocks", "latency ms", "mJ a frame" if per_frame else "mJ", "W", *(["battery h"] if battery else []), ""]
    cells = [
        [
            one.name,
            output.short_clocks(one.configuration._asdict()),
            f"{one.latency_ms:.2f}",
            f"{one.energy_mj:.1f}",
            f"{one.power_mw / 1e3:.2f}",
            *([f"{one.battery_h:.1f}"] if one.battery_h is not None else []),
            ", ".join(text for text in ("late" if one.late else "", one.note) if text),
        ]
        for one in rows
    ]
    return output.table(headers, cells, text_columns=2, right=range(2, len(headers) - 1))
