# SPDX-License-Identifier: Apache-2.0
"""``torch.export`` archives (``.pt2``): a graph of ATen calls in JSON, replayed through the same operator rules.

Sizes in the graph (torch/_export/serde/schema.py) are those of the exported example; symbolic ones take the given input's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .budget import Account
from .declared_inputs import DeclaredInput
from .errors import BudgetExceeded, ModelError, ShapeError, UnsupportedOperator
from .exported_pieces import JsonText
from .inputs import were_given
from .network import DTYPE_BYTES
from .operators.host.prim import AUTOCAST
from .operators.layout import show
from .operators.recorder import DataDependent, Recorder, matched
from .operators.registry import apply_rule
from .operators.values import ACCELERATOR, READABLE, SCALAR_CODES, Number, Tensor
from .torchscript.archive import Archive
from .torchscript.closures import truth
from .torchscript.unpickle import decode

_ASSERTIONS = frozenset(
    f"torch.ops.aten.{name}.default" for name in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")
)
_TAKEN_OUT = frozenset(("torch.ops.aten.item.default", "torch.ops.aten._local_scalar_dense.default"))
#: Functions of Python and PyTorch on numbers that are known as the network runs.
_ON_NUMBERS = ("_operator.", "math.", "torch.sym_")


def only_checking(nodes: Sequence[Mapping[str, Any]], outputs: Any, account: Account) -> frozenset[int]:
    """Places of the nodes that work on the host for assertions alone; raises BudgetExceeded."""
    needed = set(_names(outputs))
    checked: set[str] = set()
    found = []
    for place in range(len(nodes) - 1, -1, -1):
        account.step()
        node = nodes[place]
        target = str(node["target"])
        used = _names([argument["arg"] for argument in node["inputs"]])
        made = set(_names(node["outputs"]))
        on_host = target in _TAKEN_OUT or target.startswith(_ON_NUMBERS)
        if target in _ASSERTIONS or (on_host and made & checked and not made & needed):
            found.append(place)
            checked.update(used)
        else:
            needed.update(used)
    return frozenset(found)


def _names(described: Any) -> Iterator[str]:
    waiting = [described]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
            yield from (part[key] for key in ("name", "as_name") if isinstance(part.get(key), str))
        elif isinstance(part, list):
            waiting += part


#: Entry of the graph: since PyTorch 2.8, and before (without a folder around it).
GRAPH_ENTRIES = ("models/model.json", "serialized_exported_program.json")
#: Entries of the code's constant tensors since PyTorch 2.8, and their index.
_CONSTANTS, _CONSTANTS_CONFIG = "data/constants/", "data/constants/model_constants_config.json"
#: The schema numbers element types in its own way (``ScalarType``).
_TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
}
_REPEATED_CALL = re.compile(r"@\d+")
#: Python's own functions on symbolic sizes, by the operators that do the same.
_PLAIN = {"mul": "mul", "add": "add", "sub": "sub", "floordiv": "floordiv", "truediv": "div", "neg": "neg", "mod": "remainder"}
_PLAIN |= {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "getitem": "__getitem__", "pow": "pow"}
#: Arguments passed by name; before PyTorch 2.7 the graph did not mark them.
_BY_NAME = frozenset(
    (
        *("alpha", "approximate", "beta", "correction", "device", "dtype", "enable_gqa", "generator", "layout"),
        *("memory_format", "pin_memory", "rounding_mode", "scale"),
    )
)
_HIGHER_ORDER = "torch.ops.higher_order."
#: Calls of a graph that do not change its launches, and the number of arguments before its own.
_WRAPPERS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "wrap": 0, "wrap_activation_checkpoint": 0}
_WRAPPERS |= {"tag_activation_checkpoint": 0, "invoke_subgraph": 1}
#: How deep graphs within graphs are followed.
_DEEPEST = 16
#: Where ATen's name is also that of something done to lists.
_LIKE = {"copy": "copy_"}
_MEMBER = "export::access_subclass_inner_tensor"
_SAME = frozenset({"lift_fresh_copy", "alias", "detach"})


class ExportedProgram:
    """A ``.pt2`` archive opened for one decomposition; ``done`` is the share of nodes that have run.

    Raises ModelError or BudgetExceeded.
    """

    def __init__(self, archive: Archive, account: Account) -> None:
        self._entry = next(entry for entry in GRAPH_ENTRIES if entry in archive)
        size = archive.size(self._entry)
        if size > account.room():
            raise BudgetExceeded(f"archive entry {self._entry!r} has {size} bytes; there is room to read {account.room()}")
        self.position = ""
        self.done = 0.0
        self._depth = 0
        self._nodes: list[dict[str, Any]] = []
        self._outputs: list[Any] = []
        self._metas: dict[str, Mapping[str, Any]] = {}
        self._numbers: dict[str, tuple[Number, ...]] = {}
        signature: list[Mapping[str, Any]] = []
        # Up to PyTorch 2.2 every sort of argument is a member and all but one are null.
        without_nulls = None if self._entry == GRAPH_ENTRIES[0] else _without_nulls
        try:
            text = JsonText(archive.read(self._entry, size).decode(), account, without_nulls)

            def signed(at: int) -> int:
                made, end = text.value(at)
                signature.append(made)
                return end

            graph = {
                "nodes": lambda at: text.items(at, self._add),
                "outputs": lambda at: text.items(at, self._outputs.append),
                "tensor_values": lambda at: text.entries(at, self._describe),
            }
            module = {"graph": lambda at: text.members(at, graph), "signature": signed}
            text.members(0, {"graph_module": lambda at: text.members(at, module)})
            if _CONSTANTS_CONFIG in archive:
                text = JsonText(archive.read(_CONSTANTS_CONFIG).decode(), account, None)
                text.members(0, {"config": lambda at: text.entries(at, lambda name, entry: self._note(archive, name, entry))})
            self._specs: Sequence[Mapping[str, Any]] = signature[0].get("input_specs") or _first_specs(signature[0])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ModelError(f"{self._entry} is not laid out as torch.export writes it ({error!r:.120})") from error

    def _add(self, node: dict[str, Any]) -> None:
        """Keep a node, and of its metadata only the module, to save memory."""
        stack = str(node["metadata"].get("nn_module_stack", "")).rpartition(";")[2]
        self._nodes.append({**node, "metadata": {"nn_module_stack": stack}})

    def _describe(self, name: str, meta: Mapping[str, Any]) -> None:
        described = meta.get("meta", meta)
        kept = {key: described[key] for key in ("dtype", "sizes", "strides")}
        self._metas[name] = kept | {"requires_grad": described.get("requires_grad")}

    def _note(self, archive: Archive, name: str, entry: Mapping[str, Any]) -> None:
        """Read a constant without dimensions: a number that the code makes a tensor of, on the host."""
        where, dtype = f"{_CONSTANTS}{entry['path_name']}", _TYPES.get(entry["tensor_meta"]["dtype"], "")
        if not entry["tensor_meta"]["sizes"] and archive.size(where) == DTYPE_BYTES.get(dtype) and dtype in READABLE:
            self._numbers[name] = tuple(decode(archive.read(where), dtype, big_endian=False))

    def run(self, recorder: Recorder, inputs: Sequence[tuple[str, Any]]) -> None:
        """Replay the graph on the given inputs, each with its name if it has one; raises ShapeError or UnsupportedOperator."""
        try:
            names = self._start(recorder, inputs)
            idle = only_checking(self._nodes, self._outputs, recorder.account)
            for number, node in enumerate(self._nodes):
                self.done = number / len(self._nodes)
                if number not in idle:
                    self._call(recorder, node, names)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
            raise ModelError(f"{self._entry} is not laid out as torch.export writes it ({error!r:.120})") from error

    def mentioned(self) -> set[str]:
        return {name for node in self._nodes for name in re.findall(r"'name': '(\w+)'", repr(node["inputs"]))}

    def declared(self) -> list[DeclaredInput]:
        try:
            given = [spec["user_input"]["arg"] for spec in self._specs if "user_input" in spec]
            return [self._declared(argument["as_tensor"]["name"]) for argument in given if "as_tensor" in argument]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"{self._entry} is not laid out as torch.export writes it ({error!r:.120})") from error

    def _declared(self, name: str) -> DeclaredInput:
        meta = self._metas[name]
        sizes = tuple(_open_size(size) for size in meta["sizes"])
        hints = [size["as_int"] if "as_int" in size else _hint(size) for size in meta["sizes"]]
        return DeclaredInput(name, sizes, _TYPES.get(meta["dtype"], "?"), tuple(hints) if all(hints) else None)

    def _start(self, recorder: Recorder, inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        names: dict[str, Any] = {}
        wanted, fixed = [], {}
        for spec in self._specs:
            if "user_input" not in spec:
                if "constant_input" in spec:
                    constant = spec["constant_input"]
                    fixed[str(constant["name"])] = next(iter(constant["value"].values()), None)
                    continue
                name = next(iter(spec.values()))["arg"]["name"]
                recorder.weights[name] = names[name] = self._tensor(recorder, name, parameter=True)
                if "tensor_constant" in spec:
                    names[name].value = self._numbers.get(spec["tensor_constant"]["tensor_constant_name"])
                continue
            ((sort, argument),) = spec["user_input"]["arg"].items()
            if sort == "as_tensor":
                wanted.append(argument["name"])
            elif sort.startswith("as_sym_") and "as_name" in argument:
                wanted.append(argument["as_name"])
        described = ", ".join(f"{name} {self._described(name)}"[:120] for name in wanted)
        given = [(name, value) for name, value in inputs if name not in fixed]
        extra = [value for name, value in given if not name and not isinstance(value, Tensor)]
        if fixed and len(given) > len(wanted):  # in their order, among the rest
            given = [(name, value) for name, value in given if name or isinstance(value, Tensor)]
        values = matched(wanted, given)
        if values is None:
            raise ShapeError(f"the network was exported for the inputs ({described}); {were_given(inputs)}")
        for name in fixed:
            said = next((value for own, value in inputs if own == name), extra.pop(0) if extra else fixed[name])
            if said != fixed[name]:
                raise ShapeError(
                    f"the network was exported for {name:.80} = {fixed[name]!r:.40}, which is part of it, not {said!r:.40}"
                )
        for name, value in values.items():
            names[name] = value
            meta = self._metas.get(name)
            if meta is None and isinstance(value, (bool, int, float)):
                continue
            if meta is None or not isinstance(value, Tensor) or not _fits(meta, value):
                shown = f"{show(value.shape)}:{value.dtype}" if isinstance(value, Tensor) else repr(value)[:40]
                raise ShapeError(f"the network was exported for the inputs ({described}), not {shown}")
        return names

    def _described(self, name: str) -> str:
        meta = self._metas.get(name)
        if meta is None:
            return "a number"
        sizes = "x".join(str(size.get("as_int", "?")) for size in meta["sizes"])
        return f"{sizes}:{_TYPES.get(meta['dtype'], '?')}"

    def _tensor(self, recorder: Recorder, name: str, *, parameter: bool) -> Tensor:
        meta = self._metas[name]
        sizes, strides = ([part["as_int"] for part in meta[key]] for key in ("sizes", "strides"))
        if not all(type(step) is int and step >= 0 for step in strides) or len(strides) != len(sizes):
            raise ModelError(f"{self._entry}: tensor {name!r:.80} has invalid strides")
        return recorder.tensor(
            sizes, _TYPES[meta["dtype"]], strides, parameter=parameter, requires_grad=meta.get("requires_grad") is True
        )

    def _call(self, recorder: Recorder, node: Mapping[str, Any], names: dict[str, Any]) -> None:
        target = str(node["target"])
        self.position = f"{self._entry}, node {str(node.get('name') or target)[:80]}"
        stack = str(node["metadata"].get("nn_module_stack", "")).rpartition(";")[2].split(",")
        recorder.scope = _REPEATED_CALL.sub("", stack[1]) if len(stack) > 2 else ""
        if target.startswith(_HIGHER_ORDER):
            result = self._followed(recorder, target.removeprefix(_HIGHER_ORDER), node["inputs"], names)
        else:
            args: list[Any] = []
            kwargs: dict[str, Any] = {}
            for argument in node["inputs"]:
                value = _value(argument["arg"], names)
                by_name = argument["kind"] == 2 if "kind" in argument else argument["name"] in _BY_NAME
                if by_name:
                    kwargs[argument["name"]] = value
                else:
                    args.append(value)
            operator = _operator(target)
            if operator == _MEMBER:
                self._member(recorder, node, names)
                return
            result = args[0] if operator in _SAME and args else self._apply(recorder, operator, args, kwargs)
        _bind(node["outputs"], result, names)

    def _member(self, recorder: Recorder, node: Mapping[str, Any], names: dict[str, Any]) -> None:
        """A tensor within a weight of its own class, such as torchao's: the file describes it like other tensors."""
        whole, name = _value(node["inputs"][0]["arg"], names), node["outputs"][0]["as_tensor"]["name"]
        if name not in self._metas:
            raise UnsupportedOperator(f"operator {_MEMBER} has no shape rule; call unwrap_tensor_subclass, then export")
        whole.memory.read = True
        recorder.weights[name] = names[name] = self._tensor(recorder, name, parameter=whole.parameter)

    def _followed(self, recorder: Recorder, name: str, inputs: Sequence[Mapping[str, Any]], names: dict[str, Any]) -> Any:
        """A call of a graph within the graph: the body of ``no_grad`` and ``autocast``, and the taken branch."""
        values = [argument["arg"] for argument in inputs]
        graphs = [value["as_graph"]["graph"] for value in values if "as_graph" in value]
        given = [_value(value, names) for value in values if "as_graph" not in value]
        if name == "cond" and len(graphs) == 2:
            try:
                graph, operands = graphs[0] if truth(given[0]) else graphs[1], given[1]
            except DataDependent as error:
                error.operator = "higher_order::cond"
                raise
        elif name in _WRAPPERS and len(graphs) == 1:
            graph, operands = graphs[0], given[_WRAPPERS[name] :]
            if name == "wrap_with_autocast" and given[2]:
                raise UnsupportedOperator(f"{AUTOCAST} and export that")
        else:
            raise UnsupportedOperator(f"operator higher_order::{name:.80} has no shape rule; export the model without it")
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BudgetExceeded("graphs are nested too deeply")
        own = dict(zip((_name_of(item) for item in graph["inputs"]), operands, strict=True))
        idle = only_checking(graph["nodes"], graph["outputs"], recorder.account)
        for number, node in enumerate(graph["nodes"]):
            if number not in idle:
                self._call(recorder, node, own)
        self._depth -= 1
        return tuple(_value(item, own) for item in graph["outputs"])

    @staticmethod
    def _apply(recorder: Recorder, operator: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return apply_rule(recorder, operator, args, kwargs)
        except ShapeError:
            # The exporter drops a copy if its own device's attention happens to leave the following layout.
            if operator != "view":
                raise
            return apply_rule(recorder, "reshape", args, kwargs)


def _open_size(size: Mapping[str, Any]) -> int | str:
    known = size.get("as_int")
    return known if type(known) is int else str(size.get("as_expr", {}).get("expr_str", ""))


def _hint(size: Mapping[str, Any]) -> int:
    hint = size.get("as_expr", {}).get("hint") or {}
    return hint["as_int"] if type(hint.get("as_int")) is int else 0


def _fits(meta: Mapping[str, Any], tensor: Tensor) -> bool:
    sizes = [size.get("as_int", own) for size, own in zip(meta["sizes"], tensor.shape, strict=False)]
    return len(meta["sizes"]) == tensor.rank and tuple(sizes) == tensor.shape and _TYPES.get(meta["dtype"]) == tensor.dtype


def _bind(outputs: Sequence[Mapping[str, Any]], result: Any, names: dict[str, Any]) -> None:
    for place, output in enumerate(outputs):
        made: Any = (result[place] if place < len(result) else None) if isinstance(result, tuple) else result
        if "as_tensors" in output:
            if isinstance(result, tuple) and len(outputs) == 1 and len(result) == len(output["as_tensors"]):
                made = result
            for item, tensor in zip(output["as_tensors"], made, strict=True):
                names[item["name"]] = tensor
            continue
        if name := _name_of(output):
            names[name] = made


def _name_of(argument: Mapping[str, Any]) -> str:
    described = next(iter(argument.values()))
    return str(described.get("name") or described.get("as_name", "")) if isinstance(described, dict) else ""


def _first_specs(signature: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Initial values of the graph, as PyTorch 2.1 wrote them."""
    weights = [*signature["inputs_to_parameters"], *signature["inputs_to_buffers"]]
    given = [{"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in signature["user_inputs"]]
    return [*({"parameter": {"arg": {"name": name}}} for name in weights), *given]


def _without_nulls(described: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if value is not None}


def _operator(target: str) -> str:
    """``torch.ops.aten.conv2d.default`` is ``conv2d``; ``_operator.mul`` is ``mul``."""
    parts = target.split(".")
    if target.startswith("torch.ops.") and len(parts) >= 4:
        name = _LIKE.get(parts[3], parts[3])
        return name if parts[2] == "aten" else f"{parts[2]}::{name}"
    if parts[0] == "_operator" and parts[-1] in _PLAIN:
        return _PLAIN[parts[-1]]
    raise UnsupportedOperator(f"operator {target!r:.120} has no shape rule")


def _value(argument: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    """An argument's value: the schema writes each as a dictionary of one member that names its sort."""
    ((sort, value),) = argument.items()
    if sort not in _SORTS:
        raise UnsupportedOperator(f"arguments of type {sort!r:.40} are not followed")
    return _SORTS[sort](value, names)


def _optional(value: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    """An optional tensor; up to PyTorch 2.2 by its bare name."""
    tensor = value.get("as_tensor")
    if tensor is None:
        return None
    return names[tensor if isinstance(tensor, str) else tensor["name"]]


def _size(value: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    return names[value["as_name"]] if "as_name" in value else _plain(next(iter(value.values())))


def _plain(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, (int, float, str)) or (type(item) is int and abs(item) >= 1 << 63):
            raise TypeError("a number, a string or a list of them")
    return value


_SORTS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("as_none", "as_layout"), lambda value, names: None),
    "as_tensor": lambda value, names: names[value["name"]],
    "as_tensors": lambda value, names: [names[item["name"]] for item in value],
    "as_optional_tensors": lambda value, names: [_optional(item, names) for item in value],
    "as_optional_tensor": _optional,
    "as_float": lambda value, names: float(_plain(value)),  # infinities are written as text
    **dict.fromkeys(("as_int", "as_bool", "as_string"), lambda value, names: _plain(value)),
    **dict.fromkeys(("as_ints", "as_floats", "as_bools", "as_strings"), lambda value, names: _plain(value)),
    **dict.fromkeys(("as_sym_int", "as_sym_float", "as_sym_bool"), _size),
    **dict.fromkeys(
        ("as_sym_ints", "as_sym_floats", "as_sym_bools"), lambda value, names: [_size(item, names) for item in value]
    ),
    "as_scalar_type": lambda value, names: SCALAR_CODES[_TYPES[value]],
    "as_memory_format": lambda value, names: {1: 0, 2: 2}.get(value),
    "as_device": lambda value, names: ACCELERATOR,
}
