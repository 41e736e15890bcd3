# SPDX-License-Identifier: Apache-2.0
"""ONNX files: whether what jetdvfs lists is what the module dispatches, but for what exporters are known to rewrite.

The module is run, not the file, and order is not compared: exporters sort their nodes. *Equal* is the same number of launches
of each kind and number of elements or, of products, convolutions, attention and recurrence, of operations. What differs is
*explained* where every single launch that is missing or too many is accounted for by one of these, by name:

* ``constants folded`` or ``left in``: it depends on no input of the model; exporters compute such things once, but not always;
* ``repeated calls merged``, ``idle calls left out``, ``unused calls left out``: the exporter's own clean-up;
* ``batch norms folded``: into as many convolutions or products as have a bias now;
* ``written out`` and ``put together``: one call as several operators of ONNX, or several as one that jetdvfs recognises, as in
  :data:`_FORMS`;
* ``other names``: the same work by another operator, as in :data:`_NAMES`;
* ``conversions``: of element types, as many as the file has nodes for (``CumSum`` and others take fewer types than PyTorch's),
  and those to integers that exporters have no use for;
* ``copies left out``: ONNX has no memory layouts, so that ``contiguous`` is not in the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jetdvfs.kernels.network import KernelInvocation, Network, numel
from jetdvfs.tests.zoo.comparison import Dispatched, Judgement

Key = tuple[str, int]

#: Kinds that are compared by their operations; none of them may differ.
_WORK = ("conv", "matmul", "attention", "lstm", "gru", "rnn", "deform_conv")
_SORTS = {
    "constant": "constants folded",
    "repeated": "repeated calls merged",
    "idle": "idle calls left out",
    "unused": "unused calls left out",
}
#: Names for the same work.
_NAMES: dict[str, str] = {
    **dict.fromkeys(("index", "embedding", "index_select", "gather"), "pick"),
    **dict.fromkeys(("amax", "max", "min", "amin"), "extreme"),
    **dict.fromkeys(("cat", "stack", "roll"), "join"),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "relu", "hardtanh", "maximum", "minimum"), "clamp"),
    **dict.fromkeys(("expand", "repeat", "tile"), "repeat"),
    **dict.fromkeys(("where", "masked_fill"), "where"),
    **dict.fromkeys(("zeros", "ones", "full", "fill"), "fill"),
    **dict.fromkeys(("clone", "copy"), "copy"),
    **dict.fromkeys(("sub", "rsub", "add"), "add"),
    **dict.fromkeys(("adaptive_avg_pool2d", "mean", "adaptive_avg_pool1d"), "mean"),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"), "upsample"),
}
#: One call, and what it is written as; all on as many elements as it returns.
_FORMS: dict[str, Sequence[Sequence[str]]] = {
    "rsqrt": [["sqrt", "reciprocal"], ["sqrt", "div"]],
    "glu": [["sigmoid", "mul"]],
    "pixel_unshuffle": [["copy"]],
    "pixel_shuffle": [["copy"]],
    "silu": [["sigmoid", "mul"]],
    "gelu": [
        ["mul"] * 3 + ["pow", "add", "tanh", "add", "mul"],
        ["mul", "mul", "div", "erf", "add"],
        ["mul"] * 3 + ["erf", "add"],
    ],
    "group_norm": [["batch_norm", "mul", "add"]],
    "gru_cell": [["add"] * 5 + ["sigmoid"] * 2 + ["mul"] * 2 + ["tanh"]],
    "repeat": [["copy"]],
}
#: What stands beside a call that is written out with a guard: ``softplus`` of what is not large already.
_GUARDS = {"softplus": ("gt", "where")}


def _key(launch: KernelInvocation) -> Key:
    if _is_work(launch.kind):
        return launch.kind, launch.flops
    return launch.kind, numel(launch.output)


def _is_work(kind: str) -> bool:
    return kind.startswith(_WORK) and not kind.endswith("_cell")


def _makes_integers(launch: KernelInvocation) -> bool:
    return launch.kind == "to" and launch.dtype.startswith(("int", "uint"))


def _plain(key: Key) -> Key:
    """A key under the name that all its names share."""
    kind = key[0].removesuffix("_scalar")
    return (key[0], key[1]) if _is_work(key[0]) else (_NAMES.get(kind, kind), key[1])


def constant_launches(network: Network) -> list[KernelInvocation]:
    """Launches that depend on no input: all they read are weights and what such launches made.

    A list does not tell weights from inputs; what nobody wrote and has an input's shape is taken for that input.
    """
    given = {spec.shape for spec in network.inputs}
    constant: list[bool] = []
    for launch, writers in zip(network.launches, network.reads, strict=True):
        read = zip(launch.inputs, writers, strict=True)
        constant.append(all(shape not in given if writer < 0 else constant[writer] for shape, writer in read))
    return [launch for launch, of_none in zip(network.launches, constant, strict=True) if of_none]


def judge_rewritten(ours: Network, theirs: Dispatched, nodes: Mapping[str, int]) -> Judgement:
    """What a file is listed as, beside what the module dispatches that it was exported from.

    ``nodes`` is how many nodes of each operator the file has.
    """
    accounts = _Accounts(ours, theirs, nodes)
    if ours.boundary is not None:
        return _judge_early(ours, theirs, accounts)
    if theirs.trouble:
        return Judgement("not run", theirs.trouble)
    if not accounts.extra and not accounts.missing:
        return Judgement("equal")
    accounts.settle()
    if accounts.extra or accounts.missing:
        return Judgement("wrong", accounts.text())
    return Judgement("explained", ", ".join(accounts.reasons))


def _judge_early(ours: Network, theirs: Dispatched, accounts: _Accounts) -> Judgement:
    """A list that ends early: where the module looks at data too, and what is listed so far is what it dispatches."""
    end = ours.boundary
    assert end is not None
    looked = sorted({operator for _, operator in theirs.looks})
    if not looked:
        return Judgement("refused", f"ends at {end.operator} ({end.reason}) although PyTorch looks at no data")
    accounts.settle()
    if accounts.extra:
        return Judgement("wrong", accounts.text())
    return Judgement("explained", f"ends at {end.operator}; PyTorch looks at data too ({', '.join(looked)})")


class _Accounts:
    """What is listed and not run (``extra``), and what is run and not listed (``missing``), until it is accounted for."""

    def __init__(self, ours: Network, theirs: Dispatched, nodes: Mapping[str, int]) -> None:
        listed = ours.launches
        run = list(zip(map(_key, theirs.launches), theirs.sorts, strict=True))
        self.nodes = nodes
        self.listed, self.constant = listed, constant_launches(ours)
        mine, all_run = Counter(map(_key, listed)), Counter(key for key, _ in run)
        self.extra, self.missing = mine - all_run, all_run - mine
        self.optional: dict[str, Counter[Key]] = {sort: Counter(key for key, of in run if of == sort) for sort in _SORTS}
        self.to_integers = Counter(_key(launch) for launch in theirs.launches if _makes_integers(launch))
        self.reasons: list[str] = []

    def settle(self) -> None:
        self._rename()
        self._leave_out()
        self._fold_norms()
        for one, forms in _FORMS.items():
            for form in forms:
                self._rewrite("written out", self.missing, self.extra, one, form)
                self._rewrite("put together", self.extra, self.missing, one, form)
        self._attention()
        self._guards()
        self._constants_left_in()
        self._conversions()
        self._copies()

    def _note(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _leave_out(self) -> None:
        """What the exporter did not write."""
        for sort, reason in _SORTS.items():
            left = self.missing & self.optional[sort]
            if left:
                self.missing -= left
                self.optional[sort] -= left
                self._note(reason)

    def _fold_norms(self) -> None:
        norms = {key: count for key, count in self.missing.items() if key[0] == "batch_norm"}
        with_bias = sum(bool(launch.params.get("bias")) for launch in self.listed if launch.kind.startswith(("conv", "matmul")))
        if norms and sum(norms.values()) <= with_bias:
            self.missing -= Counter(norms)
            self._note("batch norms folded")

    def _rename(self) -> None:
        """Go over to shared names, under which some of what differs does not."""
        renamed = [Counter[Key](), Counter[Key]()]
        for side, counts in zip(renamed, (self.extra, self.missing), strict=True):
            for key, count in counts.items():
                side[_plain(key)] += count
        if renamed[0] & renamed[1]:
            self._note("other names")
        self.extra, self.missing = renamed[0] - renamed[1], renamed[1] - renamed[0]
        for sort, counts in self.optional.items():
            plain: Counter[Key] = Counter()
            for key, count in counts.items():
                plain[_plain(key)] += count
            self.optional[sort] = plain

    def _rewrite(self, reason: str, whole: Counter[Key], parts: Counter[Key], one: str, form: Sequence[str]) -> None:
        for kind, size in [key for key in whole if key[0] == one]:
            needed = Counter((name, size) for name in form)
            while whole[kind, size] and needed <= parts:
                whole[kind, size] -= 1
                parts -= needed
                self._note(f"{one} {reason}")
        whole += Counter()  # drops what is none any more
        if reason == "written out":
            self.missing, self.extra = whole, parts
        else:
            self.extra, self.missing = whole, parts

    def _attention(self) -> None:
        """One call, or two products and a softmax between them: of the same operations."""
        for reason, whole, parts in (("written out", self.missing, self.extra), ("put together", self.extra, self.missing)):
            for kind, flops in [key for key in whole if key[0] == "attention"]:
                while whole[kind, flops]:
                    pair = _halves(parts, flops)
                    soft = next((key for key in parts if key[0] == "softmax" and parts[key]), None)
                    if pair is None or soft is None:
                        break
                    whole[kind, flops] -= 1
                    parts -= Counter(pair)
                    parts -= Counter([soft])
                    self._note(f"attention {reason}")
        self.extra, self.missing = +self.extra, +self.missing

    def _guards(self) -> None:
        for kind, size in map(_key, self.listed):
            guard = Counter((name, size) for name in _GUARDS.get(kind, ()))
            if guard and guard <= self.extra:
                self.extra -= guard
                self._note(f"{kind} written out")

    def _constants_left_in(self) -> None:
        """What is listed of what depends on no input."""
        left = self.extra & Counter(_plain(_key(launch)) for launch in self.constant)
        if left:
            self.extra -= left
            self._note("constants left in")

    def _conversions(self) -> None:
        left = Counter({key: count for key, count in self.extra.items() if key[0] == "to"})
        if left and sum(launch.kind == "to" for launch in self.listed) <= self.nodes.get("Cast", 0):
            self.extra -= left
            self._note("conversions")
        whole = self.missing & self.to_integers
        if whole:
            self.missing -= whole
            self._note("conversions")

    def _copies(self) -> None:
        left = Counter({key: count for key, count in self.missing.items() if key[0] == "copy"})
        if left:
            self.missing -= left
            self._note("copies left out")

    def text(self) -> str:
        def told(counts: Counter[Key]) -> str:
            return ", ".join(f"{count} {kind}({size})" for (kind, size), count in counts.most_common(6)) or "nothing"

        return f"listed and not run: {told(self.extra)}; run and not listed: {told(self.missing)}"


def _halves(parts: Counter[Key], flops: int) -> list[Any] | None:
    """Two products whose operations are those of an attention."""
    products = [key for key in parts if key[0] == "matmul" and parts[key]]
    for first in products:
        second = ("matmul", flops - first[1])
        if second in parts and parts[second] >= (2 if second == first else 1):
            return [first, second]
    return None
