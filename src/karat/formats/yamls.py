"""YAML files of settings: small, plain data, each key once, and the line of every entry.

What the entries mean is the business of whoever asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from karat.columns import IN_MEMORY, Source
from karat.errors import InputError
from karat.formats.files import open_input

_LARGEST = 1_000_000
# Entries with every alias written out; a few lines of aliases can stand for billions.
_MOST_ENTRIES = 100_000
# Lines are kept for entries down to here; what lies deeper is told by the entry around it.
_DEPTH = 8

Step = str | int


@dataclass(frozen=True)
class Place:
    """A place in a file, for messages: which file, which entry, which line."""

    file: str
    steps: tuple[Step, ...] = ()
    lines: Mapping[tuple[Step, ...], int] = field(default_factory=dict, repr=False)

    def at(self, *steps: Step) -> Place:
        """A place further in."""
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
        """An error that names the place."""
        return InputError(what, where=self.file, line=self.line)


@dataclass(frozen=True)
class Yaml:
    """What a YAML file says, and where it says it."""

    data: Any
    place: Place
    source: Source = IN_MEMORY


def read_yaml(path: str | Path) -> Yaml:
    """Read a file of settings: mappings with names for keys, lists, texts and numbers."""
    file = open_input(path)
    size = len(file.data or b"") if file.path is None else file.path.stat().st_size
    _check_size(size, file.name)
    text = file.text()
    # A packed one is small until it is unpacked.
    _check_size(len(text), file.name)
    return replace(parse_yaml(text, file.name), source=file.source)


def _check_size(size: int, name: str) -> None:
    if size > _LARGEST:
        raise InputError(
            f"has {size:,} bytes; a file of settings has at most {_LARGEST:,}", where=name
        )


def parse_yaml(text: str, name: str) -> Yaml:
    """Read settings from text; ``name`` is what messages call it.

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
        what = f"holds the character {error.character:#04x}, so it is not text; save it as YAML"
        line_of_it = text.count("\n", 0, error.position) + 1
        raise InputError(what, where=name, line=line_of_it) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = error.problem or error.context or "cannot be read"
        line = None if mark is None else mark.line + 1
        raise InputError(f"is not valid YAML: {told}", where=name, line=line) from None
    except RecursionError:
        raise InputError("is nested too deeply; settings are flat", where=name) from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"is not valid YAML: {shown(str(error))}", where=name) from None


def shown(value: Any) -> str:
    """A value as a message shows it: in one line, and not the whole of it if that is long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Loader(yaml.SafeLoader):
    """Plain words are read as YAML 1.2 has them: ``on`` and ``no`` are text, 1e-3 is a number.

    Dates stay text too, and so do numbers that begin with a 0, which are names.
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


def _check(node: yaml.Node, name: str, sizes: dict[int, int], around: set[int]) -> int:
    """The number of entries with aliases written out; refuses what settings must not be."""
    if id(node) in around:
        raise _wrong(node, name, "an alias stands inside of what it stands for")
    if id(node) in sizes:
        return sizes[id(node)]
    if node.tag not in _PLAIN:
        raise _wrong(node, name, f"{node.tag.removeprefix(_TAG)} is not plain data")
    around.add(id(node))
    inside: list[yaml.Node] = []
    if isinstance(node, yaml.ScalarNode):
        _make_whole(node, name)
    elif isinstance(node, yaml.MappingNode):
        _check_keys(node, name)
        inside = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inside = node.value
    size = 1 + sum(_check(one, name, sizes, around) for one in inside)
    if size > _MOST_ENTRIES:
        raise _wrong(node, name, f"more than {_MOST_ENTRIES:,} entries, aliases written out")
    around.remove(id(node))
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
            raise _wrong(key, name, f"the key {key.value!r} is there twice; keep one")
        seen.add(key.value)


def _make_whole(node: yaml.ScalarNode, name: str) -> None:
    """Join the two halves in which JSON writes some characters; a half alone is no text."""
    if "\0" in node.value:
        raise _wrong(node, name, "a text holds the character NUL; take it out")
    try:
        node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise _wrong(
            node, name, f"{shown(node.value)} holds half a character; write the whole one"
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
            # The line of the key: its value may begin on the next one.
            lines[*steps, key.value] = key.start_mark.line + 1
            _note_lines(value, (*steps, key.value), lines)
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            _note_lines(value, (*steps, at), lines)
