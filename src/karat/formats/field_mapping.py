"""Field mapping: which columns of a user's file are karat's ``query_id``, ``gold``, ``item_id`` …

``--field gold=gold_ids`` on the command line, ``fields:`` in karat.yaml and ``fields=`` in Python.
A mapping is applied where records and columns are read, so that the readers of formats see
karat's own names and know nothing of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from karat.columns import GOLD_NAMES, GRADE_NAMES, ITEM_NAMES, QUERY_NAMES, TEXT_NAMES
from karat.errors import InputError, NoColumnError, UsageError, unknown
from karat.formats.registry import KINDS, Kind

_MAPPED_GOLD = "relevant_ids"

_PLACE = ("start", "end", "version")
_OF_QUERY = ("query_id", "text", "as_of", "no_answer", "k", "group", "rewritten", "source")
_OF_GOLD = ("gold", "item_id", "doc_id", "grade", "grades", "negatives", "negative")
_OF_HIT = ("item_id", "doc_id", "score", "rank", "stage", "source", "similarity")
_OF_CALL = ("query_id", "hits", "latency_ms", "cost", "error", "rewritten", "entities")
FIELDS: dict[Kind, tuple[str, ...]] = {
    # A file of queries may hold their gold too, in which case that is no attribute.
    "queries": (*_OF_QUERY, "entities", "gold", "grades", "negatives"),
    "gold": (*_OF_QUERY, "entities", *_OF_GOLD, *_PLACE),
    "corpus": ("item_id", "doc_id", "text", "title", "source", "tokens", *_PLACE),
    "run": (*_OF_CALL, *_OF_HIT, *_PLACE),
}
KNOWN = tuple(dict.fromkeys(name for names in FIELDS.values() for name in names))
_SYNONYMS = {"query": "text", "question": "text", "topk": "hits"}
_TARGETS = {"gold": _MAPPED_GOLD, "hits": "topk"}
# Of these a reader may know a name that comes before the mapped one, so that one is put aside.
_RIVALS = {
    "text": TEXT_NAMES,
    "gold": (*GOLD_NAMES, "gold_evidence", "gold"),
    "grade": tuple(name for name in GRADE_NAMES if name != "score"),
    "item_id": tuple(name for name in ITEM_NAMES if name not in (*QUERY_NAMES, "doc_id")),
}
_ASIDE = "attribute."
# Hits and judgments are objects in a list of their query's record.
_ENTRY = {"item_id", "doc_id", "grade", "score", "rank", "source", "similarity", *_PLACE}
_LISTS = ("topk", "raw", *GOLD_NAMES, "gold_evidence")
_MOST_SHOWN = 20

FieldsGiven = Mapping[str, str] | None


@dataclass(frozen=True)
class Rename:
    """One mapping: ``key`` as the user gave it, our ``name`` and the ``column`` it is read from."""

    key: str
    name: str
    column: str

    @property
    def target(self) -> str:
        """What readers know the column as."""
        return _TARGETS.get(self.name, self.name)

    def __str__(self) -> str:
        return f"the mapping {self.key}={self.column}"


@dataclass(frozen=True)
class Fields:
    """The mappings for all inputs of a command, and which of their columns were met."""

    given: Mapping[str, str] = field(default_factory=dict)
    # Whether queries and gold are one file, so that the prefix of either is right for it.
    one_file: bool = False
    kinds: tuple[Kind, ...] = KINDS
    met: set[str] = field(default_factory=set, compare=False)
    # The inputs that were opened, each kind with the columns of its files.
    columns: dict[Kind, dict[str, None]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for key in self.given:
            _split(key)

    def __bool__(self) -> bool:
        return bool(self.given)

    @classmethod
    def of(cls, given: Fields | FieldsGiven) -> Fields:
        """The mappings themselves, or those of a mapping such as ``{"gold": "gold_ids"}``."""
        if isinstance(given, Fields):
            return given
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise UsageError(f"fields is {given!r}; give a mapping such as {{'gold': 'gold_ids'}}")
        for key, column in given.items():
            if not isinstance(key, str) or not isinstance(column, str) or not column.strip():
                raise UsageError(f"fields: {key!r} is {column!r}; give the name of a column")
        return cls(dict(given))

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Fields:
        """``FIELD=COLUMN`` pairs, as ``--field`` takes them.

        >>> Fields.parse(["gold=gold_ids", "corpus.item_id=uid"]).given
        {'gold': 'gold_ids', 'corpus.item_id': 'uid'}
        """
        given: dict[str, str] = {}
        for text in texts:
            key, equals, column = (part.strip() for part in text.partition("="))
            if not equals or not key or not column:
                raise UsageError(f"--field takes FIELD=COLUMN, such as gold=gold_ids, not {text!r}")
            if given.setdefault(key, column) != column:
                raise UsageError(f"--field {key} is given twice, as {given[key]!r} and {column!r}")
        return cls(given)

    def texts(self) -> list[str]:
        """The mappings as ``--field`` takes them."""
        return [f"{key}={column}" for key, column in self.given.items()]

    def updated(self, later: Fields) -> Fields:
        """These with the mappings of the command line, which win over those of a file."""
        return Fields({**self.given, **later.given}) if later else self

    def together(self) -> Fields:
        """The same for a file that holds queries and their gold."""
        return replace(self, one_file=True)

    def without_runs(self) -> Fields:
        """The same for runs that karat itself logged, under its own names."""
        return replace(self, kinds=tuple(kind for kind in self.kinds if kind != "run"))

    def renames(self, kind: Kind) -> tuple[Rename, ...]:
        """The mappings for one kind of input; one with a prefix wins over one without."""
        if kind not in self.kinds:
            return ()
        kinds = {kind, "gold", "queries"} if self.one_file and kind in _PAIR else {kind}
        chosen: dict[str, Rename] = {}
        for key, column in sorted(self.given.items(), key=lambda pair: "." in pair[0]):
            prefix, name = _split(key)
            fits = name in FIELDS[kind] if prefix is None else prefix in kinds
            if fits:
                chosen[name] = Rename(key, name, column)
        return tuple(chosen.values())

    def check(self) -> None:
        """Refuse a mapping of a column that no input has."""
        for key, column in self.given.items():
            if key not in self.met:
                prefix, _ = _split(key)
                told = Rename(key, "", column)
                if prefix is not None and prefix not in self.columns:
                    what = f"no {prefix} {'were' if prefix == 'queries' else 'was'} given"
                    raise UsageError(f"{told}: {what}; leave it out")
                what = "no input has" if prefix is None else f"no input of kind {prefix} has"
                # Runs are read in several threads, which may still add columns.
                kinds = list(self.columns) if prefix is None else [prefix]
                names = dict.fromkeys(name for kind in kinds for name in list(self.columns[kind]))
                raise UsageError(f"{told}: {what} a column {column!r}{_near(column, list(names))}")


def _near(column: str, names: Sequence[str]) -> str:
    """What ends a message on a column that is not there: the nearest one, or all there are."""
    if not names:
        return "; columns have names in JSONL, CSV and Parquet"
    near = difflib.get_close_matches(column, names, n=1, cutoff=0.5)
    shown = ", ".join(names[:_MOST_SHOWN]) + (" …" if len(names) > _MOST_SHOWN else "")
    return f"; did you mean {near[0]!r}?" if near else f"; there are {shown}"


_PAIR: tuple[Kind, ...] = ("gold", "queries")


def _split(key: str) -> tuple[Kind | None, str]:
    """The prefix and the field of a key such as ``corpus.item_id``; what is unknown is refused."""
    prefix, dot, name = key.rpartition(".")
    name = _SYNONYMS.get(name, name)
    if not dot:
        if name not in KNOWN:
            raise unknown("field", name, KNOWN)
        return None, name
    kind = next((one for one in KINDS if one == prefix), None)
    if kind is None:
        raise unknown("kind of input", prefix, KINDS, inside=key)
    if name not in FIELDS[kind]:
        raise unknown(f"field of {kind}", name, FIELDS[kind], inside=key)
    return kind, name


@dataclass(frozen=True)
class Renamed:
    """The mappings for one file, applied to whatever is read from it."""

    fields: Fields
    names: tuple[Rename, ...]
    kinds: tuple[Kind, ...] = ()
    met: set[str] = field(default_factory=set, compare=False)
    columns: dict[str, None] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, fields: Fields, kind: Kind) -> Renamed | None:
        """The mappings for an input of this kind; None where there are none."""
        names = fields.renames(kind)
        kinds = _PAIR if fields.one_file and kind in _PAIR else (kind,)
        for one in kinds:
            fields.columns.setdefault(one, {})
        return cls(fields, names, kinds) if names else None

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A JSON object under our names, with the hits or judgments inside it."""
        self._note(record)
        renamed = self._renamed(record, self.names)
        inner = [one for one in self.names if one.name in _ENTRY]
        if inner:
            for key in _LISTS:
                if isinstance(renamed.get(key), list):
                    renamed[key] = self._entries(renamed[key], inner)
            if isinstance(renamed.get("stages"), dict):
                stages = renamed["stages"].items()
                renamed["stages"] = {key: self._entries(one, inner) for key, one in stages}
        return renamed

    def keys(self, names: Iterable[str]) -> list[str]:
        """The names of columns under our names, where the values are not at hand."""
        return list(self._renamed(dict.fromkeys(names), self.names))

    def frame(self, table: pl.DataFrame) -> pl.DataFrame:
        """A table under our names; a column inside a struct is taken out of it."""
        self._note(table.columns)
        found = {one: _column(table, one.column) for one in self.names}
        taken = {one: column for one, column in found.items() if column is not None}
        self._meet(taken)
        columns: dict[str, pl.Series] = {}
        for column in table.iter_columns():
            for name in _names_of(column.name, taken):
                columns[name] = column
            left = _without(column, taken)
            if left is not None:
                columns.setdefault(_aside(column.name, taken), left)
        columns |= {one.target: column for one, column in taken.items()}
        return pl.DataFrame([column.alias(name) for name, column in columns.items()])

    def own(self, name: str) -> str:
        """What the file calls a column that readers know under this name."""
        found = (one for one in self.names if one.target == name and one.key in self.met)
        return next((one.column for one in found), name)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Explain what goes wrong in reading, also where that happens after the file was opened."""
        try:
            yield
        except InputError as error:
            raise self.explained(error) from None

    def explained(self, error: InputError) -> InputError:
        """An error in reading, with the mapped columns that this file did not have."""
        if isinstance(error, NoColumnError):
            among = list(self.columns) or error.among
            error = NoColumnError(error.lacks, among, error.todo, where=error.where)
        lacking = [one for one in self.names if one.key not in self.met | self.fields.met]
        if not lacking:
            return error
        one = lacking[0]
        if str(one) in error.what:
            return error
        near = _near(one.column, list(self.columns))
        told = f"{error.what} ({one}: it has no column {one.column!r}{near})"
        kind = InputError if isinstance(error, NoColumnError) else type(error)
        return kind(told, where=error.where, line=error.line)

    def _entries(self, entries: Any, inner: Sequence[Rename]) -> Any:
        if not isinstance(entries, list):
            return entries
        if entries and isinstance(entries[0], dict):
            self._note(entries[0])
        return [self._renamed(one, inner) if isinstance(one, dict) else one for one in entries]

    def _renamed(self, record: Mapping[str, Any], names: Sequence[Rename]) -> dict[str, Any]:
        taken = {one: value for one in names for value in _find(record, one.column)}
        if not taken:
            return dict(record)
        self._meet(taken)
        renamed: dict[str, Any] = {}
        for key, value in record.items():
            for name in _names_of(key, taken):
                renamed[name] = value
            for rest in _left(key, value, taken):
                renamed.setdefault(_aside(key, taken), rest)
        return renamed | {one.target: value for one, value in taken.items()}

    def _meet(self, taken: Iterable[Rename]) -> None:
        keys = {one.key for one in taken}
        self.met.update(keys)
        self.fields.met.update(keys)

    def _note(self, names: Iterable[str]) -> None:
        """Remember some columns, for messages."""
        if len(self.columns) < 10 * _MOST_SHOWN:
            self.columns.update(dict.fromkeys(names))
            for kind in self.kinds:
                self.fields.columns[kind].update(self.columns)


def _aside(key: str, taken: Iterable[Rename]) -> str:
    """A key as it may stay beside what was mapped: not under a name that would be read first."""
    rival = any(key in _RIVALS.get(one.name, (one.target,)) for one in taken)
    return _ASIDE + key if rival else key


def _find(record: Mapping[str, Any], column: str) -> list[Any]:
    """The value of a column, alone in a list: by its name, or by the names on the way to it."""
    if column in record:
        return [record[column]]
    value: Any = record
    for step in column.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return []
        value = value[step]
    return [value]


def _names_of(key: str, taken: Iterable[Rename]) -> list[str]:
    """Our names for a column that was mapped by its own name."""
    return [one.target for one in taken if one.column == key]


def _left(key: str, value: Any, taken: Iterable[Rename]) -> list[Any]:
    """What is left of a value, alone in a list: nothing of a column, less of an object."""
    columns = [one.column for one in taken]
    if key in columns:
        return []
    inside = [column.removeprefix(f"{key}.") for column in columns if column.startswith(f"{key}.")]
    if not inside or not isinstance(value, dict):
        return [value]
    less = {name: rest for name, one in value.items() for rest in _less(name, one, inside)}
    return [less] if less else []


def _less(name: str, value: Any, columns: Iterable[str]) -> list[Any]:
    return _left(name, value, [Rename("", "", column) for column in columns])


def _column(table: pl.DataFrame, column: str) -> pl.Series | None:
    """A column by its name, or by the names on the way to it through structs."""
    if column in table.columns:
        return table[column]
    first, *steps = column.split(".")
    if not steps or first not in table.columns:
        return None
    found = table[first]
    for step in steps:
        if not isinstance(found.dtype, pl.Struct) or step not in found.struct.fields:
            return None
        found = found.struct.field(step)
    return found


def _without(column: pl.Series, taken: Iterable[Rename]) -> pl.Series | None:
    """A column without the parts of its struct that were taken; None where nothing is left."""
    gone = {one.column for one in taken}
    if column.name in gone:
        return None
    if not isinstance(column.dtype, pl.Struct):
        return column
    names = column.struct.fields
    left = [name for name in names if f"{column.name}.{name}" not in gone]
    if len(left) == len(names):
        return column
    return column.struct.unnest().select(pl.struct(left)).to_series() if left else None
