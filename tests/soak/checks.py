# SPDX-License-Identifier: Apache-2.0
"""What must be so whatever happened: on the board, in the process, in the log."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

from jetdvfs.tests.soak.processes import Resources
from jetdvfs.tests.soak.stage import Stage
from jetdvfs.tests.soak.wire import Gone, Unanswered, Wire

_LOOK_S = 0.02
#: What a daemon may have more of when a scenario is over than when it began. NumPy, loaded for the first network, takes 16 MB.
MORE_DESCRIPTORS, MORE_THREADS, MORE_KB = 4, 3, 40 << 10


def grown(before: Resources, after: Resources) -> list[str]:
    """What there is too much of."""
    found = []
    if after.descriptors > before.descriptors + MORE_DESCRIPTORS:
        found.append(f"descriptors grew from {before.descriptors} to {after.descriptors}")
    if after.threads > before.threads + MORE_THREADS:
        found.append(f"threads grew from {before.threads} to {after.threads}")
    if after.children:
        found.append(f"{after.children} children are left")
    if after.kilobytes > before.kilobytes + MORE_KB:
        found.append(f"memory grew from {before.kilobytes >> 10} to {after.kilobytes >> 10} MB")
    return found


def eventually(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def not_as_found(stage: Stage) -> dict[str, str]:
    """The settings that are neither as found nor as somebody else set them, and what they are."""
    return {
        path: f"{value} instead of {' or '.join(dict.fromkeys((stage.found[path], *stage.strangers.get(path, ()))))}"
        for path, value in stage.board.settings().items()
        if value != stage.found[path] and value not in _theirs(stage, path) and not _taken(stage, path)
    }


def _theirs(stage: Stage, path: str) -> set[str]:
    """What a file may hold because of somebody else: what they wrote, or what the kernel made of it beside it."""
    device = path.rpartition("/")[0]
    near = [other for other in stage.strangers if other.startswith(f"{device}/")]
    beside = [value for other in near for value in stage.strangers[other]]
    return {*stage.strangers.get(path, ()), *beside}


def _taken(stage: Stage, path: str) -> bool:
    """Whether somebody else uses the governor that we chose for a clock of their own: then nothing of it is taken from them."""
    device = path.rpartition("/")[0]
    setpoints = any(other.startswith(f"{device}/") and "set" in other.rpartition("/")[2] for other in stage.strangers)
    return setpoints and any(
        value == "userspace" for other, value in stage.board.settings().items() if other.startswith(f"{device}/")
    )


def check_given_back(stage: Stage, when: str, *, by_this_daemon: bool = False) -> None:
    """The board is as it was found, within the bound; or the daemon has been killed over that, and it is for the next one."""

    def over() -> bool:
        return not not_as_found(stage) or (by_this_daemon and not stage.pid)

    if not eventually(over, stage.patience.settles_s):
        for path, what in not_as_found(stage).items():
            stage.blame(f"not given back {when}: {path.rpartition('/')[2]} of {_device(path)} is {what}")


def _device(path: str) -> str:
    return next((name for name, part in (("CPU", "cpufreq"), ("memory", "emc"), ("memory", "bwmgr")) if part in path), "GPU")


def check_held(stage: Stage) -> None:
    """The clocks are what the leases ask for together, or the status says why not."""
    if not stage.pid or stage.strangers:
        return
    wanted = stage.wanted()
    if not stage.leases():
        if stage.calm:
            check_given_back(stage, "when nobody holds", by_this_daemon=True)
        return
    if wanted is None or not stage.calm:
        return
    status = status_of(stage)
    if status is None:
        return
    least = {floor["clock"]: floor["least"] for floor in status["floors"]}
    needed = {name: max(clock, least.get(name, 0)) for name, clock in wanted._asdict().items()}
    if not eventually(lambda: _measured(stage, needed), 4.0):
        status = status_of(stage) or {}
        if status.get("degraded") or status.get("throttled") or status.get("floors"):
            return
        stage.blame(
            f"the clocks are {tuple(stage.board.clocks)}, not {tuple(needed.values())}, and the status does not say why"
        )


def _measured(stage: Stage, needed: dict[str, int]) -> bool:
    return stage.board.clocks._asdict() == needed


def status_of(stage: Stage) -> dict[str, Any] | None:
    """The status, as root's own new connection is told it."""
    with contextlib.suppress(Gone, Unanswered):
        wire = Wire(stage.places.socket, timeout_s=stage.patience.answers_s)
        with contextlib.closing(wire):
            reply = stage.judge(wire.call("Status"))
            if not reply.error:
                found: dict[str, Any] = reply.parameters["status"]
                return found
    return None


def check_resources(stage: Stage) -> None:
    """The daemon has what it had when it had just started, within the bounds of what one scenario may leave."""
    fresh = stage.fresh
    if fresh is None:
        return

    def too_much() -> list[str]:
        now = Resources.of(stage.pid)
        return [] if now is None else grown(fresh, now)

    if not eventually(lambda: not too_much(), stage.patience.settles_s):
        for text in too_much():
            stage.blame(text)


_TRACEBACK = re.compile(r"Traceback|Exception in callback|Task exception was never retrieved|was never awaited|Fatal Python")


def check_log(stage: Stage, most_bytes: int = 1 << 20) -> None:
    """No exception that nobody handled; no log without end."""
    text = stage.log_text()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _TRACEBACK.search(line):
            last = next((one for one in lines[number + 1 :] if one and not one.startswith((" ", "<"))), line)
            stage.blame(f"in the log: {line.strip()[:80]} ... {last[:160]}")
            break
    if len(text) > most_bytes:
        stage.blame(f"the log has grown to {len(text)} bytes")
