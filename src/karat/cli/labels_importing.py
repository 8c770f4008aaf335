"""From files of judgments to the store: read whole, put in place, and added all at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from karat.cli.interrupts import heed_interrupts
from karat.cli.labels_sets import Document, chosen, made_or_found, opened, set_document
from karat.cli.pooling import queries_of
from karat.errors import InputError, UsageError
from karat.formats import read_corpus
from karat.judging.importing import (
    Import,
    Told,
    pairs_of,
    read_judgments,
    refuse_contradictions,
    refuse_future,
)
from karat.judging.label_sets import pairs_to_label
from karat.store import AddedSet, LabelItem, LabelSet, NewJudgment, Store
from karat.store.label_records import checked_set_name, checked_source, too_late
from karat.store.rows import utc


@dataclass(frozen=True)
class Request:
    """What ``karat labels import`` was asked for."""

    files: Sequence[str]
    which: str | None
    name: str | None
    rater: str | None
    source: str | None
    format: str | None
    queries: str | None
    corpus: str | None


def import_files(request: Request, where: str | None) -> Document:
    """Read every file, then add what they say; nothing is added if anything is wrong."""
    heed_interrupts()
    _check(request)
    source = None if request.source is None else checked_source(request.source)
    files = [
        read_judgments(name, rater=request.rater, source=source, format=request.format)
        for name in request.files
    ]
    now = utc(None)
    refuse_future(files, lambda moment: too_late(moment, now))
    refuse_contradictions(files)
    every = [told for file in files for told in file.judgments]
    with opened(where) as store:
        done = _added(store, request, files)
    return {
        "set": set_document(done.set),
        "new": done.new,
        "files": [_file(file) for file in files],
        "added": done.judgments.added,
        "known": done.judgments.known,
        "cannot_tell": sum(told.grade is None for told in every),
        "failed": sum(file.failed for file in files),
        "raters": dict(sorted(Counter(told.rater for told in every).items())),
    }


def _check(request: Request) -> None:
    if request.which is not None and request.name is not None:
        raise UsageError("--set takes a set that is there and --name makes one; give one of them")
    for option, given in (("--queries", request.queries), ("--corpus", request.corpus)):
        if given is not None and request.name is None:
            raise UsageError(f"{option} brings texts to a new set; name it with --name")
    if request.queries is not None and request.corpus is None:
        raise UsageError("--queries has the queries' texts; give those of the items with --corpus")
    named = [*request.files, request.queries, request.corpus]
    if named.count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    places = [os.path.realpath(name) for name in request.files if name != "-"]
    twice = next((name for name in request.files if places.count(os.path.realpath(name)) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice; give each file once")
    if request.name is not None:
        checked_set_name(request.name)


def _added(store: Store, request: Request, files: Sequence[Import]) -> AddedSet:
    """Add what files say to the set that is meant, or to one of their pairs, all or nothing."""
    if request.name is None:
        one = chosen(store, request.which)
        items = store.label_items(one.id)
        _refuse_strangers(files, items, one)
        return AddedSet(one, False, store.judge_many(one.id, _rows(files, items)))
    queries = corpus = None
    if request.corpus is not None:
        corpus = read_corpus(request.corpus)
        queries = queries_of(request.queries, request.files, request.format)
        if queries is None:
            raise UsageError("--corpus has the items' texts; give the queries' with --queries")
    pairs = [
        LabelItem(one.query_id, one.item_id, one.query, one.text, at, one.facts)
        for at, one in enumerate(pairs_to_label(pairs_of(files), queries=queries, corpus=corpus))
    ]
    about = f"The pairs of {', '.join(file.name for file in files)}."
    return made_or_found(store, request.name, pairs, _rows(files, pairs), about=about)


def _refuse_strangers(files: Sequence[Import], items: Sequence[LabelItem], one: LabelSet) -> None:
    """Refuse pairs that the set does not have: a judgment of something else would be lost."""
    there = {(each.query_id, each.item_id) for each in items}
    for file in files:
        lacking = [t for t in file.judgments if (t.query_id, t.item_id) not in there]
        if lacking:
            first, count = lacking[0], len({(t.query_id, t.item_id) for t in lacking})
            more = f" and {count - 1:,} more of its pairs are" if count > 1 else " is"
            them = "them" if count > 1 else "it"
            raise InputError(
                f"query {first.query_id!r}, item {first.item_id!r}{more} not in label set {one.id}"
                f" ({one.name}); leave {them} out, or make a set of the file with --name",
                where=first.place,
            )


def _rows(files: Sequence[Import], items: Sequence[LabelItem]) -> list[NewJudgment]:
    """What files say of items, by the positions of these."""
    places = {(one.query_id, one.item_id): one.position for one in items}
    return [_row(told, places) for file in files for told in file.judgments]


def _row(told: Told, places: dict[tuple[str, str], int]) -> NewJudgment:
    return NewJudgment(
        places[told.query_id, told.item_id],
        told.rater,
        told.grade,
        told.rationale,
        told.source,
        told.given_at,
        told.withdrawn_at,
    )


def _file(file: Import) -> dict[str, Any]:
    counts = {"judgments": len(file.judgments), "failed": file.failed}
    return {"name": file.name, "format": file.form, **counts}
