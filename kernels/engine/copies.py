# SPDX-License-Identifier: Apache-2.0
"""What TensorRT copies between layers, and what it need not: joined tensors, parts of tensors, layouts.

1. What is joined is written into its place by whoever makes it: no layer of its own. Copied into it is what cannot be: a part
   of a tensor, what the application hands in, what is resized, a convolution's output with a sum, and what a pool, a resize or
   an earlier join reads, too.
2. In half precision, channels come last. Copied into that layout is an image that the application hands to a convolution, and
   out of it an image whose pixels become the row of a product. A convolution that reads some channels reads a copy of them.
3. A pool of regions that keeps the size of what it reads is nothing.

So it is in the layers that were published of engines of YOLOv5, YOLOv8, YOLO11, YOLO26 and AlexNet (TensorRT 8 and 10).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..network import KernelInvocation, Shape, numel, tensor_bytes

CONVOLUTIONS = frozenset(f"conv{transposed}{rank}d" for transposed in ("", "_transpose") for rank in (1, 2, 3))
_APART = ("max_pool", "avg_pool", "adaptive_", "upsample")


def own_kind(launch: KernelInvocation) -> str:
    """A launch's kind without what is fused to it."""
    return launch.kind.removesuffix("_relu").removesuffix("_add")


class Copying:
    """Lists the launches again, with the copies that are needed and without what is not.

    Args:
        launches: what an engine has but for this.
        reads: who writes what each of them reads.
        parallel: those that are several convolutions of one tensor at once.
        half: whether it runs in half precision.
    """

    def __init__(
        self,
        launches: Sequence[KernelInvocation],
        reads: Sequence[tuple[int, ...]],
        parallel: Collection[int],
        *,
        half: bool,
    ) -> None:
        self._before, self._read = launches, reads
        self._parallel, self._half = parallel, half
        self._readers: list[list[int]] = [[] for _ in launches]
        for number, writers in enumerate(reads):
            for writer in set(writers) - {-1}:
                self._readers[writer].append(number)
        self._place: dict[int, int] = {-1: -1}
        self._written: set[int] = set()
        self._handed_in = False
        self.launches: list[KernelInvocation] = []
        self.reads: list[tuple[int, ...]] = []
        for number in range(len(launches)):
            self._list(number)

    def _list(self, number: int) -> None:
        launch, writers = self._before[number], list(self._read[number])
        places = [self._place[writer] for writer in writers]
        if launch.kind.startswith("adaptive_avg_pool") and launch.inputs[0] == launch.output:
            self._place[number] = places[0]
        elif launch.kind == "cat":
            pairs = list(zip(launch.inputs, writers, strict=True))
            self._place[number] = max(self._joined(shape, writer, number) for shape, writer in pairs)
        else:
            if launch.inputs and self._is_copied(launch, writers[0]):
                places[0] = self._copy(launch.inputs[0], launch, places[0])
            self._place[number] = self._add(launch, places)

    def _joined(self, shape: Shape, writer: int, number: int) -> int:
        """The launch after which a tensor is where it is joined to others."""
        if self._writes_directly(shape, writer, number):
            self._written.add(writer)
            return self._place[writer]
        return self._copy(shape, self._before[number], self._place[writer])

    def _writes_directly(self, shape: Shape, writer: int, number: int) -> bool:
        if writer < 0 or writer in self._written or writer in self._parallel or self._before[writer].output != shape:
            return False
        launch = self._before[writer]
        ends = (*launch.kind.split("_"), *str(launch.params.get("epilogue", "")).split("+"))
        if launch.kind.startswith(("upsample", "cat")) or (own_kind(launch) in CONVOLUTIONS and "add" in ends):
            return False
        return not any(self._before[reader].kind.startswith(_APART) for reader in self._readers[writer] if reader != number)

    def _is_copied(self, launch: KernelInvocation, writer: int) -> bool:
        """Whether a launch reads a copy of its first input."""
        convolves = own_kind(launch) in CONVOLUTIONS
        if writer < 0:
            first = convolves and self._half and not self._handed_in
            self._handed_in |= first
            return first
        read, written = launch.inputs[0], self._before[writer].output
        if convolves:
            return self._half and numel(read) < numel(written) and writer not in self._parallel
        image = len(written) > 3 and numel(written[2:]) > 1 and len(read) == 2
        return self._half and launch.kind == "matmul" and image

    def _copy(self, shape: Shape, launch: KernelInvocation, writer: int) -> int:
        moved = 2 * tensor_bytes(numel(shape), launch.dtype)
        return self._add(KernelInvocation("clone", launch.scope, (shape,), shape, launch.dtype, {}, 0, moved), [writer])

    def _add(self, launch: KernelInvocation, writers: Sequence[int]) -> int:
        self.launches.append(launch)
        self.reads.append(tuple(writers))
        return len(self.launches) - 1
