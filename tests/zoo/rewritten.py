# SPDX-License-Identifier: Apache-2.0
"""ONNX files: whether what jetdvfs lists is what the module dispatches, but for what exporters are known to rewrite.

The module is run, not the file, and order is not compared: exporters sort their nodes. *Equal* is the same number of launches
of each kind and number of elements or, of products, convolutions, attention and recurrence, of operations. What differs is
*explained* where every single launch that is missing or too many is accounted for by one of these, by name:

* ``constants folded`` or ``left in``: it depends on no input of the model; exporters compute such things once, but not always;
* ``repeated calls merged``, ``idle calls left out``, ``unused calls left out``: the exporter's own clean-up;
* ``batch norms folded``: each into the convolution or product before it, if as many more of that size have a bias now;
* ``written out`` and ``put together``: one call as several operators of ONNX, or several as one that jetdvfs recognises, as in
  :data:`~jetdvfs.tests.zoo.rewritings.FORMS`;
* ``cat within cat joined``: along one dimension, where nothing else uses the inner one;
* ``other names``: the same work by another operator, as in :data:`~jetdvfs.tests.zoo.rewritings.NAMES`;
* ``conversions``: of element types, to each at most as many as the file has nodes for (``CumSum`` and others take fewer
  types than PyTorch's);
* ``conversions left out``: to wider integers;
* ``copies left out``, ``copies made for each reader``: ONNX has no memory layouts, so that ``contiguous`` is not in the file;
  where several calls use what it makes, each is listed with a copy of its own;
* ``copies assumed``: where the file leaves it open whether there is one, and the list says that it does;
* ``masks written as numbers``: of truths, one for each attention that has a mask of so many;
* ``windows picked``: as large as those that the module looks at (``as_strided``, ``unfold``), for which ONNX has no operator;
* ``places of an index computed``: an index by several tensors is one by a sum of products of them;
* ``biases added apart``: a product of what is not contiguous, and a sum, in place of a copy and a product with a bias; a
  product of stacks of matrices, and a sum, in place of one with a bias;
* ``relu within bounds left out``: of what ``hardtanh`` or ``clamp`` takes, at most as many as the file has bounds from zero up;
* ``zeros put around by the convolution``: a pad before one, whose own padding takes it in;
* ``biases taken in``: a product with a bias in place of one of what is not contiguous, and a sum.

A list that ends early is held against what the module dispatches until it looks at the numbers in a tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from jetdvfs.kernels.network import Network, numel
from jetdvfs.tests.zoo.comparison import Dispatched, Judgement
from jetdvfs.tests.zoo.rewritings import (
    FORMS,
    GUARDS,
    NAMES,
    NODES,
    SORTS,
    Key,
    biased,
    in_pieces,
    is_whole,
    key_of,
    places_of,
    plain,
    takes_bias,
    with_bias,
)
from jetdvfs.tests.zoo.written_out import WRITTEN_OUT


def judge_rewritten(ours: Network, theirs: Dispatched, nodes: Mapping[str, int], constant: Collection[int] = ()) -> Judgement:
    """What a file is listed as, beside what the module dispatches that it was exported from.

    ``nodes`` is how many nodes the file has of each operator, and that convert to each element type; ``constant`` the places of
    launches that depend on no input.
    """
    if ours.boundary is not None:
        return _judge_early(ours, theirs, nodes, constant)
    if theirs.trouble:
        return Judgement("not run", theirs.trouble)
    accounts = Accounts(ours, theirs, nodes, constant)
    if not accounts.extra and not accounts.missing:
        return Judgement("equal")
    accounts.settle()
    if accounts.extra or accounts.missing:
        return Judgement("wrong", accounts.text())
    return Judgement("explained", ", ".join(accounts.reasons))


def _judge_early(ours: Network, theirs: Dispatched, nodes: Mapping[str, int], constant: Collection[int]) -> Judgement:
    """A list that ends early: where the module looks at data too, and what is listed is what it dispatches until then."""
    end = ours.boundary
    assert end is not None
    if not theirs.looks:
        return Judgement("refused", f"ends at {end.operator} ({end.reason}) although PyTorch looks at no data")
    nearest = None
    for place, operator in dict(theirs.looks).items():
        accounts = Accounts(ours, theirs, nodes, constant, place)
        accounts.settle()
        if not accounts.extra and not accounts.missing:
            return Judgement(
                "explained", ", ".join([f"ends at {end.operator}; PyTorch looks at data ({operator})", *accounts.reasons])
            )
        if nearest is None or accounts.left < nearest.left:
            nearest = accounts
    assert nearest is not None
    return Judgement("wrong", f"ends at {end.operator}; {nearest.text()}")


class Accounts:
    """What is listed and not run (``extra``), and what is run and not listed (``missing``), until it is accounted for.

    Of what is run, the first ``until`` launches.
    """

    def __init__(
        self,
        ours: Network,
        theirs: Dispatched,
        nodes: Mapping[str, int],
        constant: Collection[int],
        until: int | None = None,
    ) -> None:
        self.listed, self.reads = ours.launches, ours.reads
        self.constant = [self.listed[place] for place in constant]
        self.run, self.sources = theirs.launches[:until], theirs.sources[:until]
        self.nodes, self.windows = nodes, Counter(theirs.windows)
        run = list(zip(map(key_of, self.run), theirs.sorts[:until], strict=True))
        mine, all_run = Counter(map(key_of, self.listed)), Counter(key for key, _ in run)
        self.extra, self.missing = mine - all_run, all_run - mine
        self.optional = {sort: Counter(plain(key) for key, of in run if of == sort) for sort in SORTS}
        self.reasons: list[str] = []

    def settle(self) -> None:
        self._rename()
        self._fold_norms()
        for one, forms in FORMS.items():
            for form in forms:
                self._rewrite("written out", self.missing, self.extra, one, form)
                self._rewrite("put together", self.extra, self.missing, one, form)
        self._attention()
        self._places()
        for account_for in WRITTEN_OUT:
            account_for(self)
        self._masks()
        self._guards()
        self._leave_out()
        self._constants_left_in()
        self._conversions()
        self._copied_again()
        self._assumed()
        self._biases()

    def note(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _places(self) -> None:
        """Sums and products of indices, where a call takes several and the file makes one number of them, as memory lies."""
        allowed = sum(map(places_of, self.run), Counter[Key]())
        left = self.extra & allowed
        if left:
            self.extra -= left
            self.note("places of an index computed")

    def _leave_out(self) -> None:
        """What the exporter did not write."""
        for sort, reason in SORTS.items():
            left = self.missing & self.optional[sort]
            if left:
                self.missing -= left
                self.optional[sort] -= left
                self.note(reason)

    def _fold_norms(self) -> None:
        """Norms of what a convolution or product makes, of whose kind as many more have a bias now."""
        for key in [key for key in self.missing if key[0] == "batch_norm"]:
            size = key[1]
            made = [place for launch, place in zip(self.run, self.sources, strict=True) if key_of(launch) == key]
            behind = [self.run[place] for place in made if place >= 0 and takes_bias(self.run[place])]
            anyway = sum(bool(launch.params.get("bias")) for launch in behind)
            now = biased(self.listed, size) - biased(self.run, size)
            if self.missing[key] <= len(behind) and now >= self.missing[key] - anyway:
                del self.missing[key]
                self.note("batch norms folded")

    def _rename(self) -> None:
        """What goes by another name in the file."""
        extra, missing = (Counter[Key](), Counter[Key]())
        for side, counts in ((extra, self.extra), (missing, self.missing)):
            for key, count in counts.items():
                side[plain(key)] += count
        special = {
            "floor_divide": Counter(plain(key_of(one)) for one in self.run if one.kind.startswith("div") and is_whole(one)),
            "logical_and": Counter(plain(key_of(one)) for one in self.run if one.dtype == "bool"),
        }
        left = {name: sum(self.nodes.get(operator, 0) for operator in operators) for name, operators in NODES.items()}
        for kind, size in list(missing):
            for name in (kind, *NAMES.get(kind, ())):
                same = min(missing[kind, size], extra[name, size])
                if name != kind and name in left:
                    same = min(same, left[name])
                    left[name] -= same
                if name != kind and name in special:  # division that rounds has whole results, what is logical truths
                    same = min(same, special[name][kind, size])
                if same:
                    missing[kind, size] -= same
                    extra[name, size] -= same
                    self.note("other names")
        self.extra, self.missing = +extra, +missing

    def _rewrite(self, reason: str, whole: Counter[Key], parts: Counter[Key], one: str, form: Sequence[str]) -> None:
        for kind, size in [key for key in whole if key[0] == one]:
            needed = Counter((name.removesuffix("*4"), size * (4 if name.endswith("*4") else 1)) for name in form)
            while whole[kind, size] and needed <= parts:
                whole[kind, size] -= 1
                parts -= needed
                self.note(f"{one} {reason}")
        whole += Counter()  # drops what is none any more
        if reason == "written out":
            self.missing, self.extra = whole, parts
        else:
            self.extra, self.missing = whole, parts

    def _attention(self) -> None:
        """One call, or two products and a softmax between them: of the same operations, over all pairs."""
        for reason, whole, parts, launches in (
            ("written out", self.missing, self.extra, self.run),
            ("put together", self.extra, self.missing, self.listed),
        ):
            for launch in launches:
                key = key_of(launch)
                if launch.kind != "attention" or not whole[key]:
                    continue
                needed = in_pieces(parts, launch)
                if needed is not None:
                    whole[key] -= 1
                    parts -= needed
                    self.note(f"attention {reason}")
        self.extra, self.missing = +self.extra, +self.missing

    def _masks(self) -> None:
        """Masks of truths, which a file adds to the scores as numbers: for each attention that has one, of its size."""
        for launch in self.run:
            if launch.kind != "attention" or not launch.params.get("mask"):
                continue
            query, key, _ = launch.inputs
            pairs = query[-2] * key[-2]
            for size in (pairs, numel(query[:1]) * pairs, numel(query[:-2]) * pairs):
                if self.extra["where", size]:
                    self.extra -= Counter({("where", size): 1})
                    self.note("masks written as numbers")
                    break

    def _guards(self) -> None:
        for launch in self.run:
            kind, size = key_of(launch)
            if kind.startswith("div") and is_whole(launch) and self.extra["floor", size]:
                self.extra -= Counter({("floor", size): 1})
                self.note("division of whole numbers written out")
            for parts in GUARDS.get(kind, ()):
                guard = Counter((part, size) if isinstance(part, str) else part for part in parts)
                if guard <= self.extra:
                    self.extra -= guard
                    self.note(f"{kind} written out")
                    break

    def _constants_left_in(self) -> None:
        """What is listed of what depends on no input."""
        left = self.extra & Counter(plain(key_of(launch)) for launch in self.constant)
        if left:
            self.extra -= left
            self.note("constants left in")

    def _conversions(self) -> None:
        left = Counter({key: count for key, count in self.extra.items() if key[0] == "to"})
        made = Counter(launch.dtype for launch in self.listed if launch.kind == "to")
        if left and all(count <= self.nodes.get(dtype, 0) for dtype, count in made.items()):
            self.extra -= left
            self.note("conversions")

    def _copied_again(self) -> None:
        """Copies of what another listed copy is of as well, where the module makes one that all use."""
        made: set[tuple[int, ...]] = set()
        again: Counter[Key] = Counter()
        for launch, writers in zip(self.listed, self.reads, strict=True):
            if launch.kind == "clone":
                source = (*writers, *launch.inputs[0])
                again[key_of(launch)] += source in made
                made.add(source)
        left = self.extra & again & self.optional["layout"]
        if left:
            self.extra -= left
            self.note("copies made for each reader")

    def _assumed(self) -> None:
        """What the list itself says that it only assumes."""
        left = self.extra & Counter(key_of(launch) for launch in self.listed if launch.params.get("assumed"))
        if left:
            self.extra -= left
            self.note("copies assumed, as the list says")

    def _biases(self) -> None:
        """Biases added apart: rows, of which the module made a copy first, since a product of what is not contiguous has none;
        matrices as large as the product (``baddbmm``), for which ONNX has no operator. And rows taken in, where the module's
        product is of what is not contiguous, and the file does not say that it is not.
        """
        surplus = with_bias(self.run) - with_bias(self.listed)
        for launch, writers in zip(self.listed, self.reads, strict=True):
            if launch.kind != "add" or not self.extra[key_of(launch)] or writers[0] < 0:
                continue
            product, added = self.listed[writers[0]], launch.inputs[-1]
            if len(added) != 1 and added != product.output:
                continue
            if product.kind == "matmul" and not product.params.get("bias") and surplus[key_of(product)] > 0:
                surplus[key_of(product)] -= 1
                self.extra[key_of(launch)] -= 1
                self.note("biases added apart")
        more = with_bias(self.listed) - with_bias(self.run)
        for launch, source in zip(self.run, self.sources, strict=True):
            if launch.kind != "add" or not self.missing[key_of(launch)] or source < 0 or len(launch.inputs[-1]) != 1:
                continue
            product = self.run[source]
            if product.kind == "matmul" and not product.params.get("bias") and more[key_of(product)] > 0:
                more[key_of(product)] -= 1
                self.missing[key_of(launch)] -= 1
                self.note("biases taken in")
        self.extra, self.missing = +self.extra, +self.missing

    @property
    def left(self) -> int:
        """How many launches are not accounted for."""
        return self.extra.total() + self.missing.total()

    def text(self) -> str:
        def told(counts: Counter[Key]) -> str:
            return ", ".join(f"{count} {kind}({size})" for (kind, size), count in counts.most_common(6)) or "nothing"

        return f"listed and not run: {told(self.extra)}; run and not listed: {told(self.missing)}"
