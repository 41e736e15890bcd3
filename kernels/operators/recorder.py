# SPDX-License-Identifier: Apache-2.0
"""Record of launches while a network runs on shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..budget import Account
from ..errors import BudgetExceeded, ModelError, ShapeError
from ..kinds import flops
from ..network import PACKED_TYPES, Call, HostOp, KernelInvocation, ParamValue, Shape
from .tracking import PassState
from .values import HostValue, Number, Tensor


class DataDependent(ModelError):
    """The next step of an operator (empty if unknown) depends on unknown numbers in a tensor."""

    def __init__(self, reason: str, operator: str = "") -> None:
        super().__init__(reason)
        self.operator = operator


class Recorder:
    """Calls of one forward pass, in order; makes all its tensors.

    Attributes:
        calls: kernel invocations and host-only calls so far.
        reads: writers of each launch's inputs (:attr:`~jetdvfs.kernels.network.Network.reads`).
        operators: operator of each launch (:attr:`~jetdvfs.kernels.network.Network.operators`).
        views: of each launch's inputs (:attr:`~jetdvfs.kernels.network.Network.views`).
        scope: module path of the running code.
        operator: operator that runs.
        weights: of the file, by name.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self.calls: list[Call] = []
        self.reads: list[tuple[int, ...]] = []
        self.operators: list[str] = []
        self.views: list[tuple[int, ...]] = []
        self.operator = ""
        self.scope = ""
        self._instead = ""
        self.tracking = PassState()
        self.weights: dict[str, Tensor] = {}

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str,
        strides: Sequence[int] | None = None,
        *,
        parameter: bool = False,
        requires_grad: bool = False,
        value: HostValue | None = None,
        load: Callable[[], Sequence[Number]] | None = None,
        of: Tensor | None = None,
    ) -> Tensor:
        """Make a tensor; ``of`` is the tensor that it views. Raises ShapeError, BudgetExceeded."""
        budget = self.account.budget
        if len(shape) > budget.rank:
            raise BudgetExceeded(f"a tensor of {len(shape)} dimensions; at most {budget.rank} are followed")
        elements = 1
        for size in shape:
            if type(size) is not int:
                raise ShapeError(f"a tensor's sizes are integers, not {type(size).__name__}")
            if size < 0:
                raise ShapeError(
                    f"an output would have shape {'x'.join(map(str, shape))}; the input is too small for this network"
                )
            elements *= size
        if elements > budget.elements:
            raise BudgetExceeded(f"a tensor of {elements} elements; at most {budget.elements} are followed")
        steps = None if strides is None else tuple(strides)
        memory = None if of is None else of.memory
        return Tensor(
            tuple(shape), dtype, steps, parameter=parameter, requires_grad=requires_grad, value=value, load=load, memory=memory
        )

    def launch(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        output: Tensor,
        params: Mapping[str, ParamValue] | None = None,
        weights: Iterable[Tensor | None] = (),
        *,
        work: int | None = None,
        dtype: str = "",
    ) -> Tensor:
        """Record a kernel invocation and return its output; ``weights`` count in its traffic, not among its inputs.

        ``work`` is its operations if its shapes do not determine them, ``dtype`` its element type if that is its weights'.
        Raises UnsupportedOperator if the kind has no row in :mod:`jetdvfs.kernels.kinds`.
        """
        params = params or {}
        if self._instead and (output.is_quantized or output.dtype in PACKED_TYPES):
            if kind == "matmul" or kind.startswith("conv"):
                dtype, params = output.dtype, {**params, "output": self._instead}
            output.dtype = self._instead
        if len(inputs) > self.account.ITEMS:
            self.account.items(len(inputs))
        shapes: tuple[Shape, ...] = tuple([tensor.shape for tensor in inputs])
        moved = output.nbytes
        for tensor in inputs:
            moved += tensor.nbytes
            tensor.memory.read = True
        for weight in weights:
            if weight is not None:
                moved += weight.nbytes
                weight.memory.read = True
                if weight.memory.packed and (kind == "matmul" or kind.startswith("conv")):
                    dtype = dtype or weight.memory.packed
        work = flops(kind, shapes, output.shape, params) if work is None else work
        self._add(KernelInvocation(kind, self.scope, shapes, output.shape, dtype or output.dtype, params, work, moved))
        number = len(self.reads)
        self.reads.append(tuple([tensor.memory.writer for tensor in inputs]))
        self.operators.append(self.operator)
        self.views.append(tuple([tensor.views for tensor in inputs]))
        memory = output.memory
        if memory.writer >= 0 or memory.outside:
            self.tracking.overwritten(memory, number)
        memory.writer = number
        return output

    @contextmanager
    def within(self, child: str) -> Iterator[None]:
        """Enter a child of the running module, for a rule that does its work."""
        outer = self.scope
        self.scope = f"{outer}.{child}" if outer else child
        yield
        self.scope = outer

    @contextmanager
    def as_floats(self, wanted: bool = True, dtype: str = "float32") -> Iterator[None]:
        """Make 8-bit work produce another element type; products keep their working type and name ``output``."""
        outer = self._instead
        self._instead = dtype if wanted else outer
        yield
        self._instead = outer

    def host(self, name: str) -> None:
        self._add(HostOp(name, self.scope))

    def _add(self, call: Call) -> None:
        if len(self.calls) >= self.account.budget.calls:
            raise BudgetExceeded(f"the network makes more than {self.account.budget.calls} calls")
        self.calls.append(call)


def matched(wanted: Sequence[str], inputs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """Value for each name: named ones by name, the rest in order; ``None`` for a mismatch."""
    named = {name: value for name, value in inputs if name}
    plain = iter([value for name, value in inputs if not name])
    if len(inputs) != len(wanted) or not named.keys() <= set(wanted):
        return None
    return {name: named[name] if name in named else next(plain) for name in wanted}
