# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON documents as annotated types; an error is one line: place, expectation, value found.

After msgspec's refusal, members are tried one by one: its messages lack mapping keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

if TYPE_CHECKING:  # loaded on use: workers read no YAML
    import yaml

T = TypeVar("T")
Place: TypeAlias = tuple[str | int, ...]
"""Keys and positions that lead to a member."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, description="a whole number that is not negative")]
Positive: TypeAlias = Annotated[int, msgspec.Meta(gt=0, description="a positive whole number")]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0, description="a number that is not negative")]
Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z", description="a SHA-256 digest")]
Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, description="a text")]

_DEEPEST = 100
_TOO_DEEP = f"nested deeper than {_DEEPEST} levels"
# libyaml's composer recurses per level and can overflow the stack. A level takes a character, and twice this number fits 8 MB;
# checking every text would slow reading a board by a third.
_LOOKED_INTO = 12_000
_WORDS = {bool: "true or false", float: "a number", int: "a whole number", str: "a text"}


class DocumentError(ValueError):
    """Invalid content at a place, or invalid YAML on a line, from 1, if known."""

    def __init__(self, complaint: str, at: Place = (), line: int | None = None) -> None:
        super().__init__(f"{dotted(at)}: {complaint}" if at else complaint)
        self.at = at
        self.line = line

    def line_in(self, text: str) -> int | None:
        """Line of the mistake, from 1; None for the whole document."""
        return line_of(text, self.at) if self.at else self.line

    def in_file(self, name: object, text: str) -> str:
        line = self.line_in(text)
        return f"{name}: {self}" if line is None else f"{name}, line {line}: {self}"


def read_file(path: Path, form: type[T], called: str, renewed: Callable[[Any], Any] = lambda document: document) -> T:
    """YAML file as a value of exactly this type. Raises DocumentError with file and place.

    Args:
        called: kind of file, for the message.
        renewed: converts a document of an earlier form.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise DocumentError(f"{called} {path}: {error}") from error
    try:
        return convert(renewed(load_yaml(text)), form, exact=True)
    except DocumentError as error:
        raise DocumentError(error.in_file(f"{called} {path}", text)) from error


def load_yaml(text: str) -> Any:
    """Content of a YAML document. Raises DocumentError, also beyond 100 levels."""
    import yaml

    try:
        if len(text) > _LOOKED_INTO:
            _refuse_depth(text)
        document = yaml.load(text, Loader=_yaml_loader())
        if "*" in text:  # an alias, maybe
            _refuse_circle(document, set(), set())
        return document
    except yaml.MarkedYAMLError as error:
        # libyaml reads ahead, and from 0.2.6 it refuses a thousand levels before it reports the hundredth.
        too_deep = error.problem == "exceeded maximum nesting depth"
        said = _TOO_DEEP if too_deep else " ".join(filter(None, (error.context, error.problem)))
        mark = error.problem_mark or error.context_mark
        # A premature end is reported on the line after the last.
        line = min(mark.line + 1, len(text.splitlines())) if mark else None
        raise DocumentError(f"not valid YAML: {said}", line=line) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise DocumentError(f"not valid YAML: {' '.join(str(error).split())}") from error


def _refuse_depth(text: str) -> None:
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=_yaml_loader()):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            mark = event.start_mark
            raise DocumentError(f"not valid YAML: {_TOO_DEEP}", line=mark.line + 1 if mark else None)


def _refuse_circle(document: Any, around: set[int], sound: set[int]) -> None:
    if id(document) in around:
        raise DocumentError("not valid YAML: an alias within its own anchor")
    if isinstance(document, (dict, list)) and id(document) not in sound:
        for part in document.values() if isinstance(document, dict) else document:
            _refuse_circle(part, around | {id(document)}, sound)
        sound.add(id(document))


def repeated_members(text: str) -> Iterator[tuple[Place, int]]:
    """Repeated members and their lines; the last one counts."""
    import yaml

    ways: list[tuple[Place, yaml.Node | None]] = [((), yaml.compose(text, Loader=_yaml_loader()))]
    been: set[int] = set()
    while ways:
        at, node = ways.pop()
        if id(node) in been:  # by an alias
            continue
        been.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for name, value in node.value:
                if name.value in seen:
                    yield (*at, name.value), int(name.start_mark.line) + 1
                seen.add(str(name.value))
                ways.append(((*at, name.value), value))
        elif isinstance(node, yaml.SequenceNode):
            ways += (((*at, position), item) for position, item in enumerate(node.value))


def load_json(data: bytes) -> Any:
    """Content of a JSON document, without NaN and infinity. Raises DocumentError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DocumentError(f"not valid JSON: {error}") from error


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Recursive merge of mappings; None removes a key."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(under, Mapping):
            result[key] = laid_over(under, value)
        else:
            result[key] = value
    return result


def convert(raw: Any, kind: type[T], *, exact: bool = False) -> T:
    """Content as an annotated type. Unknown members are ignored, or refused if ``exact``. Raises DocumentError."""
    try:
        value = msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        raise next(mistakes(raw, kind)) from None
    for at, known in unknown_members(raw, kind) if exact else ():
        raise DocumentError(f"unknown; valid: {', '.join(known)}", at)
    return value


def unknown_members(raw: Any, kind: Any) -> Iterator[tuple[Place, tuple[str, ...]]]:
    plain = _plain(kind)
    if is_record(plain) and isinstance(raw, Mapping):
        known = tuple(_members(plain))
        yield from (((name,), known) for name in raw if name not in known)
    for key, value, inner in _parts(raw, kind):
        if isinstance(value, (Mapping, list)):
            yield from (((key, *at), known) for at, known in unknown_members(value, inner))


def dotted(at: Place) -> str:
    """Place as text: ``cpu.policies[0].name``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in at).removeprefix(".")


def line_of(text: str, at: Place) -> int:
    """Line of a member in a YAML document, from 1; of a missing one, its parent's."""
    import yaml

    node, line = yaml.compose(text, Loader=_yaml_loader()), 0
    for key in at:
        members: dict[Any, tuple[Any, Any]] = {}
        if isinstance(node, yaml.MappingNode):
            members = {name.value: (name, value) for name, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            members = {position: (item, item) for position, item in enumerate(node.value)}
        if key not in members:
            break
        name, node = members[key]
        line = name.start_mark.line
    return int(line) + 1


def _yaml_loader() -> Any:
    import yaml

    # libyaml's loader is ten times as fast, and not available everywhere.
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def mistakes(raw: Any, kind: Any, at: Place = ()) -> Iterator[DocumentError]:
    """Mistakes in a document, each at the innermost refused member."""
    inside = [
        mistake
        for key, value, inner in _parts(raw, kind)
        if _refusal(value, inner) is not None
        for mistake in mistakes(value, inner, (*at, key))
    ]
    if inside:
        yield from inside
    elif (refusal := _refusal(raw, kind)) is not None:
        yield from _own_mistakes(raw, kind, at, refusal)


def _own_mistakes(raw: Any, kind: Any, at: Place, refusal: msgspec.ValidationError) -> Iterator[DocumentError]:
    found = []
    record = _plain(kind)
    if isinstance(raw, Mapping) and is_record(record):
        known = _members(record)
        for name in raw:
            if not isinstance(name, str) or (record.__struct_config__.forbid_unknown_fields and name not in known):
                found.append(DocumentError(f"{name!r:.60} is not a member's name; valid: {', '.join(known)}", at))
        for name, hint in _required(record):
            if name not in raw:
                found.append(DocumentError(f"missing; expected {expected(hint)}", (*at, name)))
    if found:
        yield from found
    elif refusal.__cause__ is not None:  # the type's own check of its members together
        yield DocumentError(str(refusal.__cause__), at)
    else:
        yield DocumentError(f"expected {expected(kind)}, got {raw!r:.60}", at)


def _refusal(raw: Any, kind: Any) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        return error
    return None


def _parts(raw: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]]:
    kind = _plain(kind)
    inner = () if get_origin(kind) is Literal else get_args(kind)
    if isinstance(raw, Mapping) and is_record(kind):
        yield from ((name, raw[name], of) for name, of in _members(kind).items() if name in raw)
    elif isinstance(raw, Mapping) and len(inner) == 2 and inner[-1] is not ...:
        for key, value in raw.items():
            yield from ((str(key), part, of) for part, of in ((key, inner[0]), (value, inner[1])))
    elif isinstance(raw, (list, tuple)) and inner:
        of = (inner[0] for _ in raw) if len(inner) == 1 or inner[-1] is ... else inner
        yield from ((position, item, each) for position, (item, each) in enumerate(zip(raw, of, strict=False)))


def _required(kind: Any) -> Iterator[tuple[str, Any]]:
    yield from ((field.name, _members(kind)[field.name]) for field in fields(kind) if field.required)


def is_record(kind: Any) -> bool:
    """True for a type with named members."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@lru_cache(maxsize=64)
def _members(kind: Any) -> Mapping[str, Any]:
    return {field.name: field.type for field in fields(kind)}


def _plain(kind: Any) -> Any:
    """Type without annotations and without None."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return _plain(next(each for each in get_args(kind) if each is not NoneType))
    return kind


def expected(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(expected(each) for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Annotated:
        notes = (note.description for note in kind.__metadata__ if isinstance(note, msgspec.Meta) and note.description)
        return next(notes, None) or expected(get_args(kind)[0])
    if get_origin(kind) is Literal:
        *names, last = map(str, get_args(kind))
        return f"{', '.join(names)} or {last}" if names else last
    if is_record(kind) or (isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping)):
        return "a mapping"
    inner = get_args(kind)
    return _WORDS.get(kind) or (f"a list of {len(inner)}" if len(inner) > 1 and inner[-1] is not ... else "a list")
