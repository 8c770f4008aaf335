"""The content of a label set: pairs of a pool, of a report or of files, and imported judgments.

Nothing tells which system returned an item, or at which rank. A pair that a judge failed on is
counted and left out: it is no judgment, and never a 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.data.columns import join_spans
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError, UsageError
from karat.formats.files import Input
from karat.formats.json_records import JsonRecord, preview, read_records
from karat.formats.labels import ADJUDICATION, HIGHEST_GRADE, Label, out_of_range, read_label_lines
from karat.label.inputs import PAIR
from karat.label.labels import open_judgments, read_pool_records
from karat.label.pool import shuffled, with_texts
from karat.label.raters import CANNOT_TELL, rater_name
from karat.store import LabelItem, NewJudgment
from karat.store.records import as_utc, too_late

# What a rater sees beside the two texts. None of it comes from a run.
FACTS = ("as_of", "title", "doc_id", "version")
_CUT = "only its beginning is kept here"


class UnjudgedPairs(NamedTuple):
    """The unjudged pairs in the tops of a report, in the order in which raters see them.

    ``about`` is a sentence on where they come from, which names no system. ``without_text``
    counts the pairs left out because there is nothing to read.
    """

    items: list[LabelItem]
    about: str
    without_text: int


def read_pool(path: str | Path) -> list[LabelItem]:
    """Read a pool file in its order, which ``karat pool`` has shuffled; an empty one is refused."""
    pairs = read_pool_records(path)
    if not pairs:
        raise InputError("holds no pair; nothing is left to label", where=Path(path).name)
    for pair, record in pairs:
        if not pair.text.strip():
            raise record.error("an empty text: a rater would have nothing to read; leave it out")
    return [
        LabelItem(pair.query_id, pair.item_id, pair.query, pair.text, facts=_facts(record.value))
        for pair, record in pairs
    ]


def pairs_to_label(
    pairs: Iterable[tuple[str, str]],
    *,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    seed: int = 0,
) -> list[LabelItem]:
    """Return pairs to label, each once, in an order that depends only on which they are.

    With a corpus and queries every pair must have both its texts; without, none has any.
    """
    frame = pl.DataFrame(list(dict.fromkeys(pairs)), dict.fromkeys(PAIR, pl.String), orient="row")
    items = []
    for row in with_texts(shuffled(frame, seed), queries, corpus).iter_rows(named=True):
        texts = (row["query"], row["text"])
        if None in texts and queries is not None and corpus is not None:
            pair = f"query {row['query_id']!r}, item {row['item_id']!r}"
            name = "query" if texts[0] is None else "item"
            raise InputError(f"{pair}: the {name} has no text in --queries or --corpus; add it")
        query, text = (text or "" for text in texts)
        items.append(LabelItem(row["query_id"], row["item_id"], query, text, facts=_facts(row)))
    return items


def unjudged_pairs(
    head: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]], *, depth: int, seed: int = 0
) -> UnjudgedPairs:
    """Return every unjudged item in the top ``depth`` of any system of a report, each pair once.

    ``head`` and ``blocks`` are those of the report's page. The items of a query stay together,
    so that a rater reads it once. The order of queries and items depends only on the seed and on
    which pairs there are.
    """
    if not 1 <= depth <= int(head["kept"]):
        kept = f"the report keeps the first {head['kept']} items of every list"
        raise UsageError(f"depth is {depth}; {kept}, so it is from 1 to {head['kept']}")
    items: dict[tuple[str, str], LabelItem] = {}
    unread = cut = 0
    for block in blocks:
        for query in block["queries"]:
            tops = (system["hits"][:depth] for system in query["systems"])
            for item_id in {item for hits in tops for item, _, grade in hits if grade is None}:
                text = block["texts"].get(item_id, {"text": None})
                if not _is_text(query["text"]) or not _is_text(text["text"]):
                    unread += 1
                    continue
                facts = _facts(query.get("attributes") or {}, ("as_of",)) | _facts(text, ("title",))
                if text["cut"]:
                    cut += 1
                    facts["text"] = _CUT
                pair = (query["query_id"], item_id)
                items[pair] = LabelItem(*pair, query["text"], text["text"], facts=facts)
    many = "one system" if len(head["systems"]) == 1 else f"{len(head['systems'])} systems"
    about = f"Unjudged items in the top {depth} of {many}"
    about += f", {unread:,} left out because they or their query have no text" if unread else ""
    about += f", {cut:,} with only the beginning of their text" if cut else ""
    frame = pl.DataFrame(list(items), dict.fromkeys(PAIR, pl.String), orient="row")
    in_order = [items[pair] for pair in shuffled(frame, seed).iter_rows()]
    return UnjudgedPairs(in_order, f"{about}.", unread)


def _facts(known: Mapping[str, Any], names: Sequence[str] = FACTS) -> dict[str, str]:
    """Return facts as text; white space alone counts as nothing."""
    return {
        name: str(known[name])
        for name in names
        if isinstance(known.get(name), str | int | float) and str(known[name]).strip()
    }


def _is_text(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


# The source of judgments that name none.
IMPORT = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJudgment(NewJudgment):
    """A judgment of a file: its pair, and ``place``, its file and line; a set gives its position.

    The grade None is "can't tell".
    """

    query_id: str
    item_id: str
    place: str

    @property
    def pair(self) -> tuple[str, str]:
        """The ids of the query and the item."""
        return self.query_id, self.item_id


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file of judgments: its format, its judgments, and how many pairs failed."""

    name: str
    form: str
    judgments: list[ImportedJudgment]
    failed: int


def read_judgments(
    path: str | Path,
    *,
    rater: str | None = None,
    source: str | None = None,
    format: str | None = None,
) -> ImportedFile:
    """Read a file of judgments: label lines with their raters, or gold as one rater's.

    ``rater`` is the rater of judgments that name none, as in gold. ``source`` overrides the
    source that the file names.
    """
    name = None if rater is None else rater_name(rater)
    form, _, file = open_judgments(path, format)
    if isinstance(file, Gold):
        return _of_gold(file, form, name, source)
    return _of_lines(file, name, source)


def _of_gold(gold: Gold, form: str, rater: str | None, source: str | None) -> ImportedFile:
    name = gold.source.name
    if rater is None:
        raise UsageError(f"{name} is gold, which names no rater; name one with --rater")
    if not gold.frame.height:
        raise InputError("holds no judgment; at least one is expected", where=name)
    judgments = []
    for query, item, grade in join_spans(gold.frame).select(*PAIR, "grade").iter_rows():
        if not 0 <= grade <= HIGHEST_GRADE:
            pair = f"query {query!r}, item {item!r}"
            raise InputError(f"{pair}: {out_of_range(grade)}", where=name)
        ids = {"query_id": query, "item_id": item}
        judgments.append(
            ImportedJudgment(-1, rater, grade, "", source or IMPORT, place=name, **ids)
        )
    return ImportedFile(name, form, judgments, 0)


def _of_lines(file: Input, rater: str | None, source: str | None) -> ImportedFile:
    lines = list(zip(read_label_lines(file), read_records(file), strict=True))
    graded = [(line, record) for line, record in lines if line.error in (None, CANNOT_TELL)]
    failed = len(lines) - len(graded)
    judgments = [_judgment(line, record, file.name, rater, source) for line, record in graded]
    if not judgments:
        each = f": each of its {failed:,} lines failed" if failed else ""
        raise InputError(f"holds no judgment{each}; judge its pairs again", where=file.name)
    if rater is not None and all(line.rater for line, _ in graded):
        raise UsageError(f"{file.name} names the rater of every line; leave --rater out")
    return ImportedFile(file.name, "labels", judgments, failed)


def _judgment(
    label: Label, record: JsonRecord, file: str, default_rater: str | None, source: str | None
) -> ImportedJudgment:
    name = label.rater if label.rater is not None else default_rater
    if name is None:
        raise record.error("names no rater; add one to the line, or name one with --rater")
    if label.grade is not None and not 0 <= label.grade <= HIGHEST_GRADE:
        raise record.error(out_of_range(label.grade))
    line_source = _text(record, "source") or IMPORT
    if source is not None and line_source == ADJUDICATION:
        raise record.error("is an adjudication and no vote; leave --source out")
    given_at, withdrawn_at = _moment(record, "given_at"), _moment(record, "withdrawn_at")
    if withdrawn_at is not None and given_at is None:
        raise record.error("has withdrawn_at and no given_at; add given_at, or leave the line out")
    try:
        rater = rater_name(name)
    except UsageError as error:
        raise record.error(str(error)) from None
    return ImportedJudgment(
        -1,
        rater,
        label.grade,
        _text(record, "rationale"),
        source or line_source,
        given_at,
        withdrawn_at,
        query_id=label.query_id,
        item_id=label.item_id,
        place=f"{file}:{label.line}",
    )


def _text(record: JsonRecord, name: str) -> str:
    value = record.value.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    raise record.error(f"{name} is {preview(value)}; a text is expected")


def _moment(record: JsonRecord, name: str) -> datetime | None:
    """Return a time; one in the future is refused: it would override all others until then."""
    value = record.value.get(name)
    if value is None:
        return None
    with suppress(TypeError, ValueError, UsageError):
        moment = as_utc(datetime.fromisoformat(value))
        if too_late(moment, as_utc(None)):
            raise record.error(f"{name} is {moment.isoformat()}, which is in the future")
        return moment
    expected = "a time with its zone is expected, as 2026-01-31T09:30:00Z"
    raise record.error(f"{name} is {preview(value)}; {expected}")


def refuse_contradictions(judgments: Iterable[ImportedJudgment]) -> None:
    """Refuse two grades of one rater for a pair without times to order them, and two decisions."""
    first: dict[tuple[Any, ...], ImportedJudgment] = {}
    for each in judgments:
        decides = each.source == ADJUDICATION
        rater = None if decides else each.rater
        key = (*each.pair, rater, each.given_at, each.withdrawn_at)
        before = first.setdefault(key, each)
        if before.grade != each.grade:
            grades = (
                f"{CANNOT_TELL if judgment.grade is None else format(judgment.grade, 'g')}"
                f" by {judgment.rater!r} in {judgment.place}"
                for judgment in (before, each)
            )
            twice = f"is {'decided' if decides else 'judged'} twice at one time"
            pair = f"query {each.query_id!r}, item {each.item_id!r}"
            raise InputError(f"{pair} {twice}: {', '.join(grades)}; keep one of the two")
