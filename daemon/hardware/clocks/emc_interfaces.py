# SPDX-License-Identifier: Apache-2.0
"""Interfaces to the memory controller's clock, and the files of each.

``bpmp``: a rate under a lock in the firmware's debugfs node (Tegra186 and later). The lock outlives its process, and overrides
cameras, displays and the bandwidth manager. ``override``: Tegra210's override clock, which takes a rate before it is in force.
``devfreq``: equal limits of the bandwidth manager (JetPack 7). ``mainline``: equal limits in debugfs, without NVIDIA's drivers
(Linux, drivers/memory/tegra/tegra186-emc.c). ``cap``: nvpmodel's upper limit (JetPack 6), below which the clock moves. Rates
are rounded up to a trained one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..files import Files, rate_in
from .domain import ClockDomain, Write
from .governed import limited_domain

_DEBUGFS = "/sys/kernel/debug"
MAINLINE = f"{_DEBUGFS}/emc"
NOT_MOUNTED = "debugfs is not mounted"
LIMITS = ("devfreq", "mainline")

MODE_WORDS = {"bpmp": {"0": "unlocked", "1": "locked"}, "override": {"0": "unlocked", "1": "override"}}


class EmcInterface(NamedTuple):
    domain: ClockDomain
    counter: str | None
    rate: str | None


def _bpmp(files: Files, section: Mapping[str, Any]) -> EmcInterface:
    path = str(section["bpmp"])
    files.read_int(f"{path}/mrq_rate_locked"), files.read_int(f"{path}/rate")
    companions = (f"{path}/state", *([section["halt"]] if "halt" in section else []))
    domain = ClockDomain(
        "emc",
        Write(f"{path}/mrq_rate_locked", "1"),
        f"{path}/rate",
        companions=tuple(Write(companion, "1") for companion in companions if files.exists(companion)),
        floors=(f"{path}/min_rate",),
        ceilings=(f"{path}/max_rate", *_caps(section)),
    )
    return EmcInterface(domain, f"{path}/pto_counter", f"{path}/rate")


def _override(files: Files, section: Mapping[str, Any]) -> EmcInterface:
    path, limits = str(section["override"]), str(section["bwmgr"])
    files.read_int(f"{path}/clk_state"), files.read_int(f"{path}/clk_rate")
    domain = ClockDomain(
        "emc",
        Write(f"{path}/clk_state", "1"),
        f"{path}/clk_update_rate",
        floors=(f"{limits}/emc_min_rate",),
        ceilings=(f"{limits}/emc_max_rate", *_caps(section)),
        readback=f"{path}/clk_rate",
        early=True,
    )
    return EmcInterface(domain, f"{path}/clk_rate", f"{path}/clk_rate")


def _devfreq(files: Files, section: Mapping[str, Any]) -> EmcInterface:
    path = str(section["devfreq"])
    domain = limited_domain(files, "emc", f"{path}/min_freq", f"{path}/max_freq")
    return EmcInterface(domain, f"{path}/cur_freq", f"{path}/cur_freq")


def _mainline(files: Files, section: Mapping[str, Any]) -> EmcInterface:
    domain = limited_domain(files, "emc", f"{MAINLINE}/min_rate", f"{MAINLINE}/max_rate")
    rate = f"{_DEBUGFS}/clk/emc/clk_rate"
    return EmcInterface(domain, rate, rate)


def _cap(files: Files, section: Mapping[str, Any]) -> EmcInterface:
    path = str(section["cap"])
    files.read_int(path)
    return EmcInterface(ClockDomain("emc", setpoint=path), None, None)


def find_past_limits(files: Files, section: Mapping[str, Any]) -> tuple[Write, ...]:
    """The lock and the bandwidth manager's halt, which override limits; empty if the system has no limits."""
    if not any(files.exists(str(path)) for path in (section.get("devfreq"), MAINLINE) if path):
        return ()
    paths = [section["halt"]] if "halt" in section else []
    paths += [f"{section['bpmp']}/mrq_rate_locked"] if "bpmp" in section else []
    return tuple(Write(path, "1") for path in paths if files.exists(path))


def trained_hz(files: Files, section: Mapping[str, Any]) -> tuple[int, ...]:
    """Rates in Hz that the firmware lists: as files named by their kHz, or as lines of number and rate."""
    names = files.list_names(str(section["tables"])) if "tables" in section else ()
    lines = (files.find_text(str(section["table"])) or "").splitlines() if "table" in section else []
    listed = (files.find_text(f"{MAINLINE}/available_rates") or "").split()
    if mainline := {rate for word in listed if (rate := rate_in(word))}:
        return tuple(sorted(mainline))
    rates = {1000 * khz for name in names if (khz := rate_in(name))}
    rates |= {rate for line in lines if len(words := line.split()) > 1 and (rate := rate_in(words[1]))}
    return tuple(sorted(rates))


def why_no_debugfs(files: Files, failed: Iterable[str]) -> str:
    """Reason why debugfs does not lead to the memory clock; empty if untried, or visible only to root."""
    said = next((text for text in failed if text.startswith(_DEBUGFS)), "")
    if "EPERM" in said:
        return "the kernel is locked down and closes debugfs, as with secure boot"
    if "ENOENT" not in said:
        return ""
    if not (names := files.list_names(_DEBUGFS)):
        return NOT_MOUNTED
    if "emc" in names:
        return "debugfs is that of a mainline kernel, without the firmware's clocks (bpmp)"
    return "debugfs is without the firmware's clocks (bpmp), as with secure boot or a firmware that hides them"


def _caps(section: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(section.get("caps", [section["cap"]] if "cap" in section else []))


WAYS: dict[str, Callable[[Files, Mapping[str, Any]], EmcInterface]] = {
    "bpmp": _bpmp,
    "override": _override,
    "devfreq": _devfreq,
    "mainline": _mainline,
    "cap": _cap,
}
