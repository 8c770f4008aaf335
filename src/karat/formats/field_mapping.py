"""Field mapping: which columns of a user's file are karat's ``query_id``, ``gold``, ``item_id`` …

Given as ``--field gold=gold_ids`` on the command line, ``fields:`` in karat.yaml and ``fields=``
in Python. A mapping is applied when records and columns are read, so that the readers of formats
see karat's names only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, get_args

import polars as pl

from karat.data.columns import GOLD_NAMES, GRADE_NAMES, ITEM_NAMES, QUERY_NAMES, TEXT_NAMES
from karat.errors import InputError, NoColumnError, UsageError, unknown

Kind = Literal["gold", "run", "queries", "corpus"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_PLACE = ("start", "end", "version")
_OF_QUERY = ("query_id", "text", "as_of", "no_answer", "k", "group", "rewritten", "source")
_OF_GOLD = ("gold", "item_id", "doc_id", "grade", "grades", "negatives", "negative")
_OF_HIT = ("item_id", "doc_id", "score", "rank", "stage", "source", "similarity")
_OF_CALL = ("query_id", "hits", "latency_ms", "cost", "error", "rewritten", "entities")
FIELDS: dict[Kind, tuple[str, ...]] = {
    # A file of queries may also hold their gold, which is then not an attribute.
    "queries": (*_OF_QUERY, "entities", "gold", "grades", "negatives"),
    "gold": (*_OF_QUERY, "entities", *_OF_GOLD, *_PLACE),
    "corpus": ("item_id", "doc_id", "text", "title", "source", "tokens", *_PLACE),
    "run": (*_OF_CALL, *_OF_HIT, *_PLACE),
}
KNOWN = tuple(dict.fromkeys(name for names in FIELDS.values() for name in names))
_SYNONYMS = {"query": "text", "question": "text", "topk": "hits"}
_TARGETS = {"gold": "relevant_ids", "hits": "topk"}
# Names that a reader would prefer to the mapped column; they are renamed out of its way.
_RIVALS = {
    "text": TEXT_NAMES,
    "gold": (*GOLD_NAMES, "gold_evidence", "gold"),
    "grade": tuple(name for name in GRADE_NAMES if name != "score"),
    "item_id": tuple(name for name in ITEM_NAMES if name not in (*QUERY_NAMES, "doc_id")),
}
_ASIDE = "attribute."
# Fields of hits and judgments, which are objects in a list of their query's record.
_ENTRY_FIELDS = {"item_id", "doc_id", "grade", "score", "rank", "source", "similarity", *_PLACE}
_LISTS = ("topk", "raw", *GOLD_NAMES, "gold_evidence")
_MOST_SHOWN = 20
# The kinds that one file may hold together.
_PAIR: tuple[Kind, ...] = ("gold", "queries")

_MISSING: Any = object()

FieldsLike = Mapping[str, str] | Sequence[str] | None


@dataclass(frozen=True)
class Rename:
    """One mapping: ``key`` as the user wrote it, karat's ``name``, and the user's ``column``."""

    key: str
    name: str
    column: str

    @property
    def target(self) -> str:
        """The name under which readers know the column."""
        return _TARGETS.get(self.name, self.name)

    def __str__(self) -> str:
        return f"the mapping {self.key}={self.column}"


@dataclass(frozen=True)
class Fields:
    """The mappings for all inputs of a command, and which of their columns were found."""

    given: Mapping[str, str] = field(default_factory=dict)
    one_file: bool = False
    """Whether queries and gold are one file, so that the prefix of either fits it."""
    kinds: tuple[Kind, ...] = KINDS
    met: set[str] = field(default_factory=set, compare=False)
    columns: dict[Kind, dict[str, None]] = field(default_factory=dict, compare=False)
    """The columns of the files that were opened, by kind."""

    def __bool__(self) -> bool:
        return bool(self.given)

    @classmethod
    def of(cls, fields: Fields | FieldsLike) -> Fields:
        """Return mappings from ``{"gold": "gold_ids"}`` or ``["gold=gold_ids"]``."""
        if isinstance(fields, Fields):
            return fields
        if fields is None:
            return cls()
        if isinstance(fields, (list, tuple)):
            return cls.parse(fields)
        if not isinstance(fields, Mapping):
            raise UsageError(f"fields is {fields!r}; give a mapping such as {{'gold': 'gold_ids'}}")
        for key, column in fields.items():
            if not isinstance(key, str) or not isinstance(column, str) or not column.strip():
                raise UsageError(f"fields: {key!r} is {column!r}; give the name of a column")
            _split(key)
        return cls(dict(fields))

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Fields:
        """Parse ``FIELD=COLUMN`` pairs, as ``--field`` takes them.

        >>> Fields.parse(["gold=gold_ids", "corpus.item_id=uid"]).given
        {'gold': 'gold_ids', 'corpus.item_id': 'uid'}
        """
        mappings: dict[str, str] = {}
        for text in texts:
            key, equals, column = (part.strip() for part in text.partition("="))
            if not equals or not key or not column:
                raise UsageError(f"--field takes FIELD=COLUMN, such as gold=gold_ids, not {text!r}")
            if mappings.setdefault(key, column) != column:
                raise UsageError(
                    f"--field {key} is given twice, as {mappings[key]!r} and {column!r}"
                )
        return cls.of(mappings)

    def texts(self) -> list[str]:
        """Return the mappings as ``--field`` takes them."""
        return [f"{key}={column}" for key, column in self.given.items()]

    def updated(self, later: Fields) -> Fields:
        """Return these mappings with later ones, which win."""
        return Fields({**self.given, **later.given}) if later else self

    def together(self) -> Fields:
        """Return the same mappings for a file that holds queries and their gold."""
        return replace(self, one_file=True)

    def without_runs(self) -> Fields:
        """Return the same mappings without runs, which karat logs under its own names."""
        return replace(self, kinds=tuple(kind for kind in self.kinds if kind != "run"))

    def check(self) -> None:
        """Raise UsageError for a mapped column that no input has."""
        for key, column in self.given.items():
            if key not in self.met:
                kind, _ = _split(key)
                inputs = "no input has" if kind is None else f"no input of kind {kind} has"
                kinds = list(self.columns) if kind is None else [kind]
                # Runs are read in several threads, which may still add columns.
                names = chain.from_iterable(list(self.columns.get(opened, ())) for opened in kinds)
                hint = _nearest(column, list(dict.fromkeys(names)))
                raise UsageError(f"the mapping {key}={column}: {inputs} a column {column!r}{hint}")


def _nearest(column: str, names: Sequence[str]) -> str:
    """Return the end of a message on a missing column: the nearest one, or all of them."""
    if not names:
        return "; give a file with named columns: JSONL, CSV or Parquet"
    matches = difflib.get_close_matches(column, names, n=1, cutoff=0.5)
    shown = ", ".join(names[:_MOST_SHOWN]) + (" …" if len(names) > _MOST_SHOWN else "")
    return f"; did you mean {matches[0]!r}?" if matches else f"; there are {shown}"


def _split(key: str) -> tuple[Kind | None, str]:
    """Return the prefix and field of a key such as ``corpus.item_id``; refuse unknown ones."""
    prefix, dot, name = key.rpartition(".")
    name = _SYNONYMS.get(name, name)
    if not dot:
        if name not in KNOWN:
            raise unknown("field", name, KNOWN)
        return None, name
    kind = next((known for known in KINDS if known == prefix), None)
    if kind is None:
        raise unknown("kind of input", prefix, KINDS, inside=key)
    if name not in FIELDS[kind]:
        raise unknown(f"field of {kind}", name, FIELDS[kind], inside=key)
    return kind, name


@dataclass(frozen=True)
class FileMapping:
    """The mappings for one file, applied to everything that is read from it."""

    fields: Fields
    kind: Kind
    names: tuple[Rename, ...]

    @classmethod
    def of(cls, fields: Fields, kind: Kind) -> FileMapping | None:
        """Return the mappings for an input of this kind; None if there are none."""
        if kind not in fields.kinds:
            return None
        kinds = _PAIR if fields.one_file and kind in _PAIR else (kind,)
        names: dict[str, Rename] = {}
        # A mapping with a prefix comes later, so that it wins over one without.
        for key, column in sorted(fields.given.items(), key=lambda pair: "." in pair[0]):
            prefix, name = _split(key)
            if name in FIELDS[kind] if prefix is None else prefix in kinds:
                names[name] = Rename(key, name, column)
        return cls(fields, kind, tuple(names.values())) if names else None

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON object under karat's names, including the hits or judgments inside it."""
        self._note(record)
        renamed = self._renamed(record, self.names)
        inner = [rename for rename in self.names if rename.name in _ENTRY_FIELDS]
        if inner:
            for key in _LISTS:
                if key in renamed:
                    renamed[key] = self._entries(renamed[key], inner)
            if isinstance(renamed.get("stages"), dict):
                stages = renamed["stages"].items()
                renamed["stages"] = {stage: self._entries(hits, inner) for stage, hits in stages}
        return renamed

    def keys(self, names: Iterable[str]) -> list[str]:
        """Return column names as karat's names, without their values."""
        return list(self._renamed(dict.fromkeys(names), self.names))

    def frame(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return a table under karat's names; a mapped field of a struct becomes a column."""
        self._note(table.columns)
        columns = self._renamed({column.name: column for column in table}, self.names)
        return pl.DataFrame([column.alias(name) for name, column in columns.items()])

    def column_of(self, name: str) -> str:
        """Return the file's name of a column that readers know under this name."""
        for rename in self.names:
            if rename.target == name and rename.key in self.fields.met:
                return rename.column
        return name

    def explained(self, error: InputError) -> InputError:
        """Return an input error that names the mapped columns which this file lacks."""
        if isinstance(error, NoColumnError):
            error = NoColumnError(error.lacks, self._columns, error.todo, where=error.where)
        missing = [rename for rename in self.names if rename.key not in self.fields.met]
        # Where nothing could be read, nothing is known of the columns.
        if not missing or not self._columns or str(missing[0]) in error.what:
            return error
        column = missing[0].column
        hint = _nearest(column, self._columns)
        message = f"{error.what} ({missing[0]}: it has no column {column!r}{hint})"
        kind = InputError if isinstance(error, NoColumnError) else type(error)
        return kind(message, where=error.where, line=error.line)

    def _entries(self, entries: Any, inner: Sequence[Rename]) -> Any:
        if not isinstance(entries, list):
            return entries
        if entries and isinstance(entries[0], dict):
            self._note(entries[0])
        return [
            self._renamed(entry, inner) if isinstance(entry, dict) else entry for entry in entries
        ]

    def _renamed(self, record: Mapping[str, Any], names: Sequence[Rename]) -> dict[str, Any]:
        """Return values under karat's names; what a mapped column displaces is set aside."""
        values = {rename: _find(record, rename.column) for rename in names}
        mapped = {rename: value for rename, value in values.items() if value is not _MISSING}
        self.fields.met.update(rename.key for rename in mapped)
        columns = {rename.column for rename in mapped}
        rivals = {name for rename in mapped for name in _RIVALS.get(rename.name, (rename.target,))}
        others = {
            _ASIDE + key if key in rivals else key: value
            for key, value in record.items()
            if key not in columns
        }
        return {rename.target: value for rename, value in mapped.items()} | others

    def _note(self, names: Iterable[str]) -> None:
        """Remember some columns for messages."""
        columns = self.fields.columns.setdefault(self.kind, {})
        if len(columns) < 10 * _MOST_SHOWN:
            columns.update(dict.fromkeys(names))

    @property
    def _columns(self) -> list[str]:
        return list(self.fields.columns.get(self.kind, ()))


@contextmanager
def explaining(mapping: FileMapping | None) -> Iterator[None]:
    """Name the mapped columns that a file lacks in input errors of the block."""
    try:
        yield
    except InputError as error:
        if mapping is None:
            raise
        raise mapping.explained(error) from None


def _find(record: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column by its name or its dotted path."""
    if column in record:
        return record[column]
    value: Any = record
    for step in column.split("."):
        if isinstance(value, pl.Series) and isinstance(value.dtype, pl.Struct):
            value = value.struct.unnest().to_dict()
        if not isinstance(value, Mapping) or step not in value:
            return _MISSING
        value = value[step]
    return value
