"""The content of a label set: pairs of a pool, of a report or of files, and imported judgments.

Nothing tells which system returned an item, or at which rank. A pair that a judge failed on is
counted and left out: it is no judgment, and never a 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from karat.data.columns import join_spans
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError, UsageError
from karat.formats import read_gold
from karat.formats.files import Input, open_input, refuse_binary
from karat.formats.json_records import Record, preview, read_records
from karat.formats.labels import ADJUDICATION, Label, read_label_lines
from karat.formats.registry import detect_input, format_named
from karat.label.labelling import CANNOT_TELL, rater_name
from karat.label.labels import read_pairs

# What a rater sees beside the two texts. None of it comes from a run.
FACTS = ("as_of", "title", "doc_id", "version")
_CUT = "only its beginning is kept here"


@dataclass(frozen=True, slots=True)
class PairToLabel:
    """A pair with its texts; ``facts`` is what else helps to judge it, such as ``as_of``."""

    query_id: str
    item_id: str
    query: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnjudgedPairs:
    """The unjudged pairs in the tops of a report, in the order in which raters see them.

    ``without_text`` and ``without_query`` count the pairs left out because there is nothing to
    read, ``cut`` the pairs with only the beginning of the text.
    """

    items: list[PairToLabel]
    depth: int
    systems: int
    without_text: int
    without_query: int
    cut: int

    def about(self) -> str:
        """Return one sentence on where the items come from; it names no system."""
        many = "one system" if self.systems == 1 else f"{self.systems} systems"
        told = [f"Unjudged items in the top {self.depth} of {many}"]
        for count, what in (
            (self.without_text, "left out because they have no text"),
            (self.without_query, "left out because their query has no text"),
            (self.cut, "with only the beginning of their text"),
        ):
            if count:
                told.append(f"{count:,} {what}")
        return ", ".join(told) + "."


def read_pool(path: str | Path) -> list[PairToLabel]:
    """Read a pool file in its order, which ``karat pool`` has shuffled; an empty one is refused."""
    pairs = read_pairs(path)
    if not pairs:
        raise InputError("holds no pair; nothing is left to label", where=Path(path).name)
    blank = next((at for at, pair in enumerate(pairs, 1) if not pair.text.strip()), None)
    if blank is not None:
        told = f"pair {blank} has an empty text: a rater would have nothing to read; leave it out"
        raise InputError(told, where=Path(path).name)
    records = read_records(open_input(path))
    return [
        PairToLabel(*pair, facts=_facts(record.value))
        for pair, record in zip(pairs, records, strict=True)
    ]


def pairs_to_label(
    pairs: Iterable[tuple[str, str]],
    *,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    seed: int = 0,
) -> list[PairToLabel]:
    """Return pairs to label, each once, in an order that depends only on which they are.

    With a corpus and queries every pair must have both its texts; without, none has any.
    """
    wanted = dict.fromkeys(pairs)
    asked = {} if queries is None else _by_id(queries.frame, "query_id")
    known = {} if corpus is None else _by_id(corpus.frame, "item_id")
    if queries is not None and corpus is not None:
        lacking = [
            (query, item)
            for query, item in wanted
            if not _told(asked.get(query, {}).get("text"))
            or not _told(known.get(item, {}).get("text"))
        ]
        if lacking:
            raise InputError(_without_texts(lacking, asked))
    found: dict[str, dict[str, PairToLabel]] = {}
    for query, item in wanted:
        told = asked.get(query, {}), known.get(item, {})
        facts = _facts(told[0], ("as_of",)) | _facts(told[1], ("title", "doc_id", "version"))
        asks, tells = (str(one.get("text") or "") for one in told)
        found.setdefault(query, {})[item] = PairToLabel(query, item, asks, tells, facts)
    return _shuffled(found, seed)


def _by_id(frame: pl.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    names = [name for name in (key, "text", *FACTS) if name in frame.columns]
    return {row[key]: row for row in frame.select(list(dict.fromkeys(names))).iter_rows(named=True)}


def _without_texts(lacking: Sequence[tuple[str, str]], asked: Mapping[str, Any]) -> str:
    query, item = lacking[0]
    what = "the item" if query in asked and _told(asked[query].get("text")) else "the query"
    more = f" (and {len(lacking) - 1:,} more pairs)" if len(lacking) > 1 else ""
    return (
        f"query {query!r}, item {item!r}{more} cannot be read: {what} has no text in what"
        " --queries and --corpus hold; add it there, or import without either"
    )


def unjudged_pairs(
    head: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]], *, depth: int, seed: int = 0
) -> UnjudgedPairs:
    """Return every unjudged item in the top ``depth`` of any system of a report, each pair once.

    ``head`` and ``blocks`` are those of the report's page. The items of a query stay together,
    so that a rater reads it once. The order of queries and items depends only on the seed and on
    which pairs there are.
    """
    if not 1 <= depth <= int(head["kept"]):
        raise UsageError(
            f"depth is {depth}; the report keeps the first {head['kept']} items of every list,"
            f" so it is from 1 to {head['kept']}"
        )
    found: dict[str, dict[str, PairToLabel]] = {}
    lacking = Counter[str]()
    for block in blocks:
        for query in block["queries"]:
            found[query["query_id"]] = _readable(query, block["texts"], depth, lacking)
    return UnjudgedPairs(
        _shuffled(found, seed),
        depth,
        len(head["systems"]),
        without_text=lacking["text"],
        without_query=lacking["query"],
        cut=lacking["cut"],
    )


def _readable(
    query: Mapping[str, Any], texts: Mapping[str, Any], depth: int, lacking: Counter[str]
) -> dict[str, PairToLabel]:
    """Return the unjudged items of a query that can be read; count those without a text."""
    wanted = _unjudged(query, depth)
    if not _told(query["text"]):
        lacking["query"] += len(wanted)
        return {}
    kept = [one for one in wanted if one in texts and _told(texts[one]["text"])]
    lacking["text"] += len(wanted) - len(kept)
    lacking["cut"] += sum(bool(texts[one]["cut"]) for one in kept)
    return {one: _item(query, one, texts[one]) for one in kept}


def _unjudged(query: Mapping[str, Any], depth: int) -> list[str]:
    """Return the ids of items without a grade in any system's top, sorted to hide the order."""
    tops = (one["hits"][:depth] for one in query["systems"])
    return sorted({item for hits in tops for item, _, grade in hits if grade is None})


def _item(query: Mapping[str, Any], item_id: str, text: Mapping[str, Any]) -> PairToLabel:
    facts = _facts(query.get("attributes") or {}, ("as_of",)) | _facts(text, ("title",))
    if text["cut"]:
        facts["text"] = _CUT
    return PairToLabel(query["query_id"], item_id, query["text"], text["text"], facts)


def _facts(known: Mapping[str, Any], names: Sequence[str] = FACTS) -> dict[str, str]:
    """Return facts as text; white space alone counts as nothing."""
    return {
        name: str(known[name])
        for name in names
        if isinstance(known.get(name), str | int | float) and str(known[name]).strip()
    }


def _told(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _shuffled(found: Mapping[str, Mapping[str, PairToLabel]], seed: int) -> list[PairToLabel]:
    """Return the pairs with queries, and the items of each, in random order."""
    rng = np.random.default_rng(seed)
    queries = sorted(found)
    places = {name: sorted(found[name]) for name in queries}
    order = []
    for at in rng.permutation(len(queries)):
        items = places[queries[at]]
        order += [found[queries[at]][items[one]] for one in rng.permutation(len(items))]
    return order


# The source of judgments that name none.
IMPORT = "import"
HIGHEST_GRADE = 100


@dataclass(frozen=True, slots=True)
class ImportedJudgment:
    """One judgment of a file; the grade None is "can't tell", ``place`` its file and line."""

    query_id: str
    item_id: str
    rater: str
    grade: float | None
    rationale: str
    source: str
    given_at: datetime | None
    withdrawn_at: datetime | None
    place: str


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
    who = None if rater is None else rater_name(rater)
    if str(path) != "-" and Path(path).is_dir():
        return _of_gold(read_gold(path, format=format), "beir", who, source)
    file = open_input(path)
    if format not in (None, "parquet"):
        refuse_binary(file)
    form = detect_input(file, "gold") if format is None else format_named(format)
    if form.name == "labels":
        return _of_lines(file, who, source)
    gold = form.reader("gold")(file, duplicates="agree")
    return _of_gold(gold, form.name, who, source)


def _of_gold(gold: Gold, form: str, rater: str | None, source: str | None) -> ImportedFile:
    name = gold.source.name
    if rater is None:
        raise UsageError(f"{name} is gold, which names no rater; name one with --rater")
    if not gold.frame.height:
        raise InputError("holds no judgment; at least one is expected", where=name)
    table = join_spans(gold.frame).select("query_id", "item_id", "grade")
    told = []
    for query, item, grade in table.iter_rows():
        if not 0 <= grade <= HIGHEST_GRADE:
            pair = f"query {query!r}, item {item!r}"
            raise InputError(f"{pair}: {_out_of_range(grade)}", where=name)
        told.append(
            ImportedJudgment(query, item, rater, grade, "", source or IMPORT, None, None, name)
        )
    return ImportedFile(name, form, told, 0)


def _of_lines(file: Input, rater: str | None, source: str | None) -> ImportedFile:
    told: list[ImportedJudgment] = []
    failed, unnamed = 0, 0
    for label, record in zip(read_label_lines(file), read_records(file), strict=True):
        if label.error is not None and label.error != CANNOT_TELL:
            failed += 1
            continue
        unnamed += label.rater is None
        told.append(_judgment(label, record, file.name, rater, source))
    if not told:
        each = f": each of its {failed:,} lines failed" if failed else ""
        raise InputError(f"holds no judgment{each}; judge its pairs again", where=file.name)
    if rater is not None and not unnamed:
        raise UsageError(f"{file.name} names the rater of every line; leave --rater out")
    return ImportedFile(file.name, "labels", told, failed)


def _judgment(
    label: Label, record: Record, where: str, rater: str | None, source: str | None
) -> ImportedJudgment:
    line, value = label.line, record.value
    who = label.rater if label.rater is not None else rater
    if who is None:
        told = "names no rater; add one to the line, or name one with --rater"
        raise InputError(told, where=where, line=line)
    if label.grade is not None and not 0 <= label.grade <= HIGHEST_GRADE:
        raise InputError(_out_of_range(label.grade), where=where, line=line)
    from_where = _text(value, "source", where, line) or IMPORT
    if source is not None and from_where == ADJUDICATION:
        raise InputError(
            "is an adjudication, which --source would turn into a vote; leave --source out",
            where=where,
            line=line,
        )
    given, withdrawn = (_moment(value, key, where, line) for key in ("given_at", "withdrawn_at"))
    if withdrawn is not None and given is None:
        told = "has withdrawn_at and no given_at; add given_at, or leave the line out"
        raise InputError(told, where=where, line=line)
    try:
        name = rater_name(who)
    except UsageError as error:
        raise InputError(str(error), where=where, line=line) from None
    return ImportedJudgment(
        label.query_id,
        label.item_id,
        name,
        label.grade,
        _text(value, "rationale", where, line),
        source or from_where,
        given,
        withdrawn,
        f"{where}:{line}",
    )


def refuse_contradictions(files: Iterable[ImportedFile]) -> None:
    """Refuse two grades of one rater for a pair without times to order them, and two decisions."""
    first: dict[tuple[Any, ...], ImportedJudgment] = {}
    for one in (told for file in files for told in file.judgments):
        decides = one.source == ADJUDICATION
        whose = None if decides else one.rater
        key = (one.query_id, one.item_id, whose, one.given_at, one.withdrawn_at)
        before = first.setdefault(key, one)
        if before.grade != one.grade:
            grades = " and ".join(map(_grade, (before.grade, one.grade)))
            told = "decided" if decides else "judged"
            raters = f"the same rater {one.rater!r}"
            if before.rater != one.rater:
                raters = f"{before.rater!r} and {one.rater!r} at one time"
            raise InputError(
                f"query {one.query_id!r}, item {one.item_id!r} is {told} {grades} by {raters}"
                f" in {before.place} and {one.place}; keep one of the two"
            )


def refuse_future(files: Iterable[ImportedFile], too_late: Callable[[datetime], bool]) -> None:
    """Refuse times in the future: such a judgment would override all others until then."""
    for one in (told for file in files for told in file.judgments):
        for name, moment in (("given_at", one.given_at), ("withdrawn_at", one.withdrawn_at)):
            if moment is not None and too_late(moment):
                told = f"{name} is {moment.isoformat()}, which is in the future; correct the time"
                raise InputError(told, where=one.place)


def _text(value: dict[str, Any], name: str, where: str, line: int) -> str:
    told = value.get(name)
    if told is None or isinstance(told, str):
        return told or ""
    raise InputError(f"{name} is {preview(told)}; a text is expected", where=where, line=line)


def _moment(value: dict[str, Any], name: str, where: str, line: int) -> datetime | None:
    told = value.get(name)
    if told is None:
        return None
    try:
        given = datetime.fromisoformat(told)
        # The first and the last hours of the calendar are none in UTC.
        moment = None if given.tzinfo is None else given.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        moment = None
    if moment is None:
        raise InputError(
            f"{name} is {preview(told)}; a time with its zone is expected, as 2026-01-31T09:30:00Z",
            where=where,
            line=line,
        )
    return moment


def _out_of_range(grade: float) -> str:
    return f"grade is {grade:g}; a grade is from 0 to {HIGHEST_GRADE}"


def _grade(grade: float | None) -> str:
    return CANNOT_TELL if grade is None else f"{grade:g}"


def pairs_of(files: Iterable[ImportedFile]) -> Iterator[tuple[str, str]]:
    """Yield every pair that the files judge, in their order."""
    return ((one.query_id, one.item_id) for file in files for one in file.judgments)
