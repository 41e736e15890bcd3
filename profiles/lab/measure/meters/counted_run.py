# SPDX-License-Identifier: Apache-2.0
"""Run networks, once warm, on a GPU between marks for a profiler::

    python -m jetdvfs.profiles.lab.measure.meters.counted_run ASKED.json TOLD.json

ASKED has ``name``, ``path`` and ``inputs`` of each; TOLD receives failures by name. A mark is an empty kernel, last of a
network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....adapt.torch_worker import RefusedRequest, Run, Worker

_WARM_UP = 3


class CountedRun(Worker):
    def warmed_up(self, asked: Mapping[str, Any]) -> Run:
        run = self._network_of({"path": asked["path"], "inputs": asked["inputs"]})
        for _ in range(_WARM_UP):
            run()
        self._wait()
        return run

    def count(self, run: Run, marked: bool) -> None:
        """Run once between the profiler's marks. Errors end the process: unmarked launches belong to no network."""
        cuda = self.torch.cuda
        cuda.profiler.start()
        run()
        if marked:
            cuda._sleep(1)
        self._wait()
        cuda.profiler.stop()


def main(arguments: Sequence[str]) -> int:
    asked, told = json.loads(Path(arguments[0]).read_text()), dict[str, str]()
    try:
        import torch

        worker = CountedRun(torch, "cuda")
    except (ImportError, RefusedRequest) as error:
        print(error, file=sys.stderr)
        return 1
    with torch.no_grad():
        for one in asked:
            try:
                run = worker.warmed_up(one)
            except (RefusedRequest, RuntimeError) as error:
                told[one["name"]] = " ".join(str(error).split())[:300]
                continue
            worker.count(run, len(asked) > 1)
    Path(arguments[1]).write_text(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
