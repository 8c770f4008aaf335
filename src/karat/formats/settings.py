"""YAML files of settings: plain data, each key once, and the line of every entry.

``ConfigModel`` is the base of the pydantic models that give the entries their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from karat.data.columns import IN_MEMORY, Source
from karat.errors import InputError, unknown
from karat.formats.files import open_input

_LARGEST = 1_000_000
# Entries with all aliases expanded; a few lines of aliases can expand to billions.
_MOST_ENTRIES = 100_000
# Lines are kept for entries down to this depth; deeper ones have the line of their parent.
_DEPTH = 8

Step = str | int


@dataclass(frozen=True)
class Place:
    """A place in a file, for messages: which file, which entry, which line."""

    file: str
    steps: tuple[Step, ...] = ()
    lines: Mapping[tuple[Step, ...], int] = field(default_factory=dict, repr=False)

    def at(self, *steps: Step) -> Place:
        """Return a place further inside."""
        return replace(self, steps=(*self.steps, *steps))

    @property
    def line(self) -> int | None:
        """The line of the entry, or of the nearest one around it; None for the whole file."""
        for end in range(len(self.steps), 0, -1):
            if self.steps[:end] in self.lines:
                return self.lines[self.steps[:end]]
        return None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def error(self, what: str) -> InputError:
        """Return an InputError at this place."""
        return InputError(what, where=self.file, line=self.line)


@dataclass(frozen=True)
class Yaml:
    """The data of a YAML file, and the lines of its entries."""

    data: Any
    place: Place
    source: Source = IN_MEMORY


def read_yaml(path: str | Path) -> Yaml:
    """Read a file of settings: mappings with text keys, lists, texts and numbers."""
    file = open_input(path)
    too_large = file.path is not None and file.path.stat().st_size > _LARGEST
    # A packed file is small until it is unpacked.
    text = "" if too_large else file.text()
    if too_large or len(text) > _LARGEST:
        raise InputError(
            f"is too large; a file of settings has at most {_LARGEST:,} bytes", where=file.name
        )
    return replace(parse_yaml(text, file.name), source=file.source)


def parse_yaml(text: str, name: str) -> Yaml:
    """Parse settings from text; ``name`` is for messages.

    >>> parse_yaml("on: mean", "gates.yaml").data
    {'on': 'mean'}
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise InputError("is empty; settings are expected", where=name)
        _check(root, name, {}, set())
        lines: dict[tuple[Step, ...], int] = {}
        _note_lines(root, (), lines)
        return Yaml(loader.construct_document(root), Place(name, lines=lines))
    except yaml.reader.ReaderError as error:
        message = f"holds the character {error.character:#04x}, so it is not text; save it as YAML"
        line = text.count("\n", 0, error.position) + 1
        raise InputError(message, where=name, line=line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be read"
        place = None if mark is None else mark.line + 1
        raise InputError(f"is not valid YAML: {problem}", where=name, line=place) from None
    except RecursionError:
        raise InputError("is nested too deeply; settings are flat", where=name) from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"is not valid YAML: {preview(str(error))}", where=name) from None


def preview(value: Any) -> str:
    """Return a value for a message, on one line and shortened if it is long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Loader(yaml.SafeLoader):
    """Reads plain words as YAML 1.2 does: ``on`` and ``no`` are text, 1e-3 is a number.

    Dates stay text, and so do numbers that begin with 0, which are names.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML keeps them here


_TAG = "tag:yaml.org,2002:"
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("float", r"[-+]?(?:[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))", [*"-+.0123456789"]),
    ("float", r"\.(?:nan|NaN|NAN)", ["."]),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)
_PLAIN = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map")}


def _check(node: yaml.Node, name: str, sizes: dict[int, int], parents: set[int]) -> int:
    """Return the number of entries with aliases expanded; refuse what settings must not hold."""
    if id(node) in parents:
        raise _wrong(node, name, "an alias is inside the value that it refers to")
    if id(node) in sizes:
        return sizes[id(node)]
    if node.tag not in _PLAIN:
        raise _wrong(node, name, f"{node.tag.removeprefix(_TAG)} is not plain data")
    parents.add(id(node))
    children: list[yaml.Node] = []
    if isinstance(node, yaml.ScalarNode):
        _make_whole(node, name)
    elif isinstance(node, yaml.MappingNode):
        _check_keys(node, name)
        children = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    size = 1 + sum(_check(child, name, sizes, parents) for child in children)
    if size > _MOST_ENTRIES:
        raise _wrong(node, name, f"more than {_MOST_ENTRIES:,} entries, aliases written out")
    parents.remove(id(node))
    sizes[id(node)] = size
    return size


def _check_keys(node: yaml.MappingNode, name: str) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag == _TAG + "merge":
            continue
        if key.tag != _TAG + "str" or not isinstance(key, yaml.ScalarNode):
            raise _wrong(key, name, "a key must be text; put it in quotes")
        _make_whole(key, name)
        if not key.value.strip():
            raise _wrong(key, name, f"a key is {key.value!r}; give it a name")
        if key.value in seen:
            raise _wrong(key, name, f"the key {key.value!r} occurs twice; keep one")
        seen.add(key.value)


def _make_whole(node: yaml.ScalarNode, name: str) -> None:
    """Join the surrogate pairs in which JSON writes some characters; refuse half a pair."""
    if "\0" in node.value:
        raise _wrong(node, name, "a text holds the character NUL; remove it")
    try:
        node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _wrong(
            node,
            name,
            f"{preview(node.value)} holds half a surrogate pair; write the whole character",
        ) from None


def _wrong(node: yaml.Node, name: str, what: str) -> InputError:
    return InputError(what, where=name, line=node.start_mark.line + 1)


def _note_lines(
    node: yaml.Node, steps: tuple[Step, ...], lines: dict[tuple[Step, ...], int]
) -> None:
    lines.setdefault(steps, node.start_mark.line + 1)
    if len(steps) == _DEPTH:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            # The line of the key, because its value may start on the next one.
            lines[*steps, key.value] = key.start_mark.line + 1
            _note_lines(value, (*steps, key.value), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note_lines(value, (*steps, index), lines)


_CUSTOM = "refused"


class ConfigModel(BaseModel):
    """Base of settings: refuses unknown keys, and text where a number is expected."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


F = TypeVar("F", bound=ConfigModel)


def custom_error(why: str) -> PydanticCustomError:
    """Return an error for a validator that explains more than the expected type."""
    return PydanticCustomError(_CUSTOM, "{why}", {"why": why})


def expectations(model: type[BaseModel]) -> dict[str, str]:
    """Return what each key of a model must be, by its name in a file."""
    return {
        field.alias or name: field.description or "something else"
        for name, field in model.model_fields.items()
    }


def validate(model: type[F], data: Mapping[str, Any], place: Place) -> F:
    """Return the model filled with data; raise InputError with the line of a wrong entry."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        for key, value in data.items():
            inner = _inner_model(model, key)
            if inner is None:
                continue
            if isinstance(value, Mapping):
                validate(inner, value, place.at(key))
            for index, entry in enumerate(value if isinstance(value, list) else ()):
                if isinstance(entry, Mapping):
                    validate(inner, entry, place.at(key, index))
        key, message = explain_error(error, data, expectations(model))
        raise place.at(key).error(message) from None


def _inner_model(model: type[BaseModel], key: str) -> type[ConfigModel] | None:
    """Return the model under a key, alone, optional or in a list."""
    types = [
        field.annotation for name, field in model.model_fields.items() if key in (name, field.alias)
    ]
    while types:
        annotation = types.pop()
        if (
            isinstance(annotation, type)
            and not get_args(annotation)
            and issubclass(annotation, ConfigModel)
        ):
            return annotation
        types += get_args(annotation)
    return None


def explain_error(
    error: ValidationError, data: Mapping[Any, Any], expected: Mapping[str, str]
) -> tuple[str, str]:
    """Return the key with a wrong value, and what is wrong with it."""
    # A misspelled key also makes the right one missing; the misspelling is reported first.
    order = {"extra_forbidden": 0, "missing": 1}
    entries = sorted(error.errors(), key=lambda entry: order.get(entry["type"], 2))
    key = str(entries[0]["loc"][0]) if entries[0]["loc"] else ""
    if entries[0]["type"] == "extra_forbidden":
        return key, str(unknown("key", key, expected))
    if entries[0]["type"] == _CUSTOM:
        return key, entries[0]["msg"]
    expectation = expected.get(key, "something else")
    if entries[0]["type"] == "missing":
        return key, f"{key} is missing; give {expectation}"
    return key, f"{key} is {preview(data.get(key))}; it must be {expectation}"
