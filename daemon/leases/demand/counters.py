# SPDX-License-Identifier: Apache-2.0
"""The kernel's counters of who used the CPUs and who waited, all since boot.

proc_stat(5): idle and iowait are exact on tickless kernels where the other columns are sampled. proc_pid_stat(5): what a thread
ran, and where last. Linux, Documentation/accounting/psi.rst: the ``some`` totals.

psutil would not do: it reads one procfs for the whole process, not that of the board's root, waits for a file for ever, and
tells neither on which core a thread ran last nor the pressure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...hardware.clocks.cpu import POLICIES
from ...hardware.files import Files

TICKS_PER_S = 100
"""USER_HZ, the same on every architecture Jetsons ever had."""

_MOST_PROCESSES = 64
# Columns of /proc/PID/stat after the command's name: time in user and system mode, the same of children waited for, last CPU.
_OWN_TIMES, _ALL_TIMES, _LAST_CPU = slice(11, 13), slice(11, 15), 36


@dataclass(frozen=True)
class Counters:
    """The counters at one moment.

    Attributes:
        idle: ticks idled, by CPU.
        threads: ticks that each thread of the processes asked about ran, by process and thread, and its last CPU.
        own: ticks that those processes and the children they waited for ran.
        khz: the clock of every cpufreq policy, by path.
        waited_us: microseconds in which some task waited, for ``cpu`` and for ``memory``; 0 where the kernel does not say.
    """

    idle: Mapping[str, int]
    threads: Mapping[tuple[str, str], tuple[int, str]]
    own: int
    khz: Mapping[str, int]
    waited_us: Mapping[str, int]


def read_counters(files: Files, pids: Collection[int]) -> Counters:
    """Read them now; what cannot be read counts nothing.

    Args:
        pids: the processes whose threads are listed, with their descendants.
    """
    idle = {}
    for line in (files.find_text("/proc/stat") or "").splitlines():
        if told := re.match(r"cpu(\d{1,9})(?: \d+){3} (\d{1,18}) (\d{1,18})\b", line):
            idle[told[1]] = int(told[2]) + int(told[3])
    threads: dict[tuple[str, str], tuple[int, str]] = {}
    own = 0
    for pid in _tree(files, pids):
        own += sum(_times(files, f"/proc/{pid}/stat")[_ALL_TIMES])
        for thread in files.list_names(f"/proc/{pid}/task"):
            times = _times(files, f"/proc/{pid}/task/{thread}/stat")
            if len(times) > _LAST_CPU:
                threads[pid, thread] = (sum(times[_OWN_TIMES]), str(times[_LAST_CPU]))
    khz = {policy: files.find_rate(f"{policy}/scaling_cur_freq") or 0 for policy in files.glob(POLICIES)}
    return Counters(idle, threads, own, khz, {what: _waited_us(files, what) for what in ("cpu", "memory")})


def _tree(files: Files, pids: Collection[int]) -> Iterator[str]:
    """These processes and their descendants."""
    todo, seen = [str(pid) for pid in pids], set[str]()
    while todo and len(seen) < _MOST_PROCESSES:
        pid = todo.pop()
        if pid in seen or not files.exists(f"/proc/{pid}/stat"):
            continue
        seen.add(pid)
        yield pid
        for thread in files.list_names(f"/proc/{pid}/task"):
            todo += (files.find_text(f"/proc/{pid}/task/{thread}/children") or "").split()


def _times(files: Files, path: str) -> list[int]:
    """The numbers of a stat file after the command's name, the state letter as zero; empty where the process is gone."""
    words = (files.find_text(path) or "").rpartition(")")[2].split()
    return [0, *(int(word) for word in words[1:] if len(word) < 20 and word.lstrip("-").isdecimal())] if words else []


def _waited_us(files: Files, what: str) -> int:
    told = re.match(r"some .*\btotal=(\d{1,18})\b", files.find_text(f"/proc/pressure/{what}") or "")
    return int(told[1]) if told else 0
