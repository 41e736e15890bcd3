# SPDX-License-Identifier: Apache-2.0
"""Runs a network once on a GPU between the marks that a profiler counts between, after it has run to warm up::

python -m jetdvfs.profiles.lab.measure.meters.counted_run MODEL 1x3x224x224:float32 ...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ....adapt.torch_worker import Refused, Worker

_WARM_UP = 3


class CountedRun(Worker):
    """A worker that runs one network and says nothing."""

    def count(self, path: str, inputs: Sequence[dict[str, Any]]) -> None:
        run, profiler = self._network_of({"path": path, "inputs": inputs}), self.torch.cuda.profiler
        with self.torch.no_grad():
            for _ in range(_WARM_UP):
                run()
            self._wait()
            profiler.start()
            run()
            self._wait()
            profiler.stop()


def main(arguments: Sequence[str]) -> int:
    path, *given = arguments
    inputs = [
        {"shape": [int(size) for size in shape.split("x")], "dtype": dtype}
        for shape, _, dtype in (one.partition(":") for one in given)
    ]
    try:
        import torch

        CountedRun(torch, "cuda").count(path, inputs)
    except (ImportError, Refused) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
