"""Label sets in the store: made, filled from files, listed, compared, decided on and logged.

Every function opens the store, does one thing and returns a result. Exports are in
``label_export``; pages in ``label_pages``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karat.errors import InputError, UsageError, unknown
from karat.formats.files import check_path
from karat.formats.labels import ADJUDICATION
from karat.label import label_pages
from karat.label.inputs import corpus_table, queries_table, refuse_two_pipes
from karat.label.label_sets import (
    ImportedFile,
    pairs_of,
    pairs_to_label,
    read_judgments,
    read_pool,
    refuse_contradictions,
    refuse_future,
)
from karat.label.labelling import (
    FEW,
    agreement,
    alphas,
    conflicts,
    decisions,
    majority,
    progress,
    rater_name,
    rationale_text,
)
from karat.pages.page import Page
from karat.pages.result import Result
from karat.store import (
    AddedLabelSet,
    Judgment,
    LabelItem,
    LabelSet,
    NameTakenError,
    NewJudgment,
    NoHistoryError,
    Store,
)
from karat.store.records import as_utc, checked_set_name, checked_source, too_late

_MAKE = "make a set with karat labels new POOL, or with karat labels import FILE --name NAME"
# A message names this many sets.
_NAMED = 10

Where = str | None
Waiting = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False)
class LabelResult(Result):
    """The result of one action on the store: ``body`` is plain data, ``page_of`` its page."""

    body: Mapping[str, Any]
    page_of: Callable[[Mapping[str, Any]], Page]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(self.body)

    def page(self) -> Page:
        """Return the page that people read."""
        return self.page_of(self.body)


@contextmanager
def open_store(where: Where, waiting: Waiting | None = None) -> Iterator[Store]:
    """Open a store that keeps its data; ``waiting`` is called if another process uses it."""
    with Store.open(where, waiting=waiting or _ignore) as store:
        if not store.lasting:
            raise UsageError("a store in memory keeps nothing; name a file")
        try:
            yield store
        except NoHistoryError as error:
            raise NoHistoryError(
                f"no judgments are kept here; {_MAKE}", where=error.where
            ) from None


def _ignore(name: str) -> None:
    pass


def choose_set(store: Store, name: str | None) -> LabelSet:
    """Return the set with this id or name, or the only one that there is."""
    sets = store.label_sets()
    if not sets:
        raise UsageError(f"there is no label set in {store.name} yet; {_MAKE}")
    if name is None:
        if len(sets) > 1:
            raise UsageError(
                f"there are {len(sets)} label sets; choose one with --set: {_names(sets)}"
            )
        return sets[0]
    matches = [one for one in sets if str(one.id) == name] or [
        one for one in sets if one.name == name.strip()
    ]
    if not matches:
        known = [str(one.id) for one in sets] + [one.name for one in sets]
        raise unknown("label set", name, known)
    if len(matches) > 1:
        raise UsageError(
            f"{len(matches)} label sets are called {name!r}; choose one by id: {_names(matches)}"
        )
    return matches[0]


def _names(sets: Sequence[LabelSet]) -> str:
    names = ", ".join(f"{one.id} ({one.name})" for one in sets[:_NAMED])
    return names + (", …" if len(sets) > _NAMED else "")


def set_dict(label_set: LabelSet) -> dict[str, Any]:
    """Return the id, name and size of a set."""
    return {"id": label_set.id, "name": label_set.name, "size": label_set.size}


def list_label_sets(store: Where = None, *, waiting: Waiting | None = None) -> LabelResult:
    """List every set: what is judged, where raters differ, and the progress of each rater."""
    with open_store(store, waiting) as opened:
        sets = [_summary(opened, label_set) for label_set in opened.label_sets()]
    return LabelResult({"sets": sets}, label_pages.sets_page)


def _summary(store: Store, label_set: LabelSet) -> dict[str, Any]:
    items, judgments = store.label_items(label_set.id), store.judgments(label_set.id)
    differing = conflicts(items, judgments)
    return {
        **label_set.document(),
        "judged": len({judgment.position for judgment in judgments}),
        "conflicts": len(differing),
        "open": sum(conflict.decision is None for conflict in differing),
        "decided": len(decisions(judgments)),
        "raters": [rater.to_dict() for rater in progress(label_set.size, judgments)],
        "sources": dict(sorted(Counter(judgment.source for judgment in judgments).items())),
        "readable": bool(items and items[0].text.strip()),
    }


def new_label_set(
    pool: str, name: str | None = None, store: Where = None, *, waiting: Waiting | None = None
) -> LabelResult:
    """Make a set of a pool's pairs; the same pairs again are the set that exists."""
    check_path(pool)
    if name is not None:
        checked_set_name(name)
    items = [
        LabelItem(pair.query_id, pair.item_id, pair.query, pair.text, facts=pair.facts)
        for pair in read_pool(pool)
    ]
    file = "stdin" if pool == "-" else Path(pool).name
    title = file.split(".")[0] if name is None else name
    with open_store(store, waiting) as opened:
        added = _add_set(opened, title, items, about=f"From the pool {file}.")
    body = {"set": set_dict(added.set), "new": added.new}
    return LabelResult(body, label_pages.new_set_page)


def _add_set(
    store: Store,
    name: str,
    items: list[LabelItem],
    judgments: Sequence[NewJudgment] = (),
    *,
    about: str,
) -> AddedLabelSet:
    try:
        return store.add_judged_set(name, items, judgments, about=about)
    except NameTakenError as error:
        raise UsageError(
            f"{error} with --name, or add judgments to that set: karat labels import … --set"
        ) from None


def import_labels(
    files: Sequence[str],
    *,
    label_set: str | None = None,
    name: str | None = None,
    rater: str | None = None,
    source: str | None = None,
    queries: str | None = None,
    corpus: str | None = None,
    format: str | None = None,
    store: Where = None,
    waiting: Waiting | None = None,
) -> LabelResult:
    """Add the judgments of files to a set, or with ``name`` to a new set of the files' pairs.

    All of it is added or nothing. Judgments that exist already are not added again.
    """
    _check_import(files, label_set, name, queries, corpus)
    source = None if source is None else checked_source(source)
    imported = [read_judgments(file, rater=rater, source=source, format=format) for file in files]
    now = as_utc(None)
    refuse_future(imported, lambda moment: too_late(moment, now))
    refuse_contradictions(imported)
    judgments = [judgment for file in imported for judgment in file.judgments]
    with open_store(store, waiting) as opened:
        if name is None:
            chosen = choose_set(opened, label_set)
            items = opened.label_items(chosen.id)
            _refuse_unknown_pairs(imported, items, chosen)
            rows = _rows(imported, items)
            added = AddedLabelSet(chosen, False, opened.judge_many(chosen.id, rows))
        else:
            items = _new_items(imported, files, queries, corpus, format)
            about = f"The pairs of {', '.join(file.name for file in imported)}."
            added = _add_set(opened, name, items, _rows(imported, items), about=about)
    body = {
        "set": set_dict(added.set),
        "new": added.new,
        "files": [
            {
                "name": file.name,
                "format": file.form,
                "judgments": len(file.judgments),
                "failed": file.failed,
            }
            for file in imported
        ],
        "added": added.judgments.added,
        "known": added.judgments.known,
        "cannot_tell": sum(judgment.grade is None for judgment in judgments),
        "failed": sum(file.failed for file in imported),
        "raters": dict(sorted(Counter(judgment.rater for judgment in judgments).items())),
    }
    return LabelResult(body, label_pages.import_page)


def _check_import(
    files: Sequence[str],
    label_set: str | None,
    name: str | None,
    queries: str | None,
    corpus: str | None,
) -> None:
    if label_set is not None and name is not None:
        raise UsageError("--set adds to an existing set and --name makes one; give one of them")
    for option, value in (("--queries", queries), ("--corpus", corpus)):
        if value is not None and name is None:
            raise UsageError(f"{option} brings texts to a new set; name it with --name")
    if queries is not None and corpus is None:
        raise UsageError("--queries has the queries' texts; give those of the items with --corpus")
    refuse_two_pipes(*files, queries, corpus)
    places = [os.path.realpath(file) for file in files if file != "-"]
    twice = next((file for file in files if places.count(os.path.realpath(file)) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is given twice; give each file once")
    if name is not None:
        checked_set_name(name)


def _new_items(
    imported: Sequence[ImportedFile],
    files: Sequence[str],
    queries: str | None,
    corpus: str | None,
    format: str | None,
) -> list[LabelItem]:
    asked = None
    if corpus is not None:
        asked = queries_table(queries, list(files), gold_format=format)
        if asked is None:
            raise UsageError("--corpus has the items' texts; give the queries' with --queries")
    pairs = pairs_to_label(pairs_of(imported), queries=asked, corpus=corpus_table(corpus))
    return [
        LabelItem(pair.query_id, pair.item_id, pair.query, pair.text, at, pair.facts)
        for at, pair in enumerate(pairs)
    ]


def _refuse_unknown_pairs(
    imported: Sequence[ImportedFile], items: Sequence[LabelItem], label_set: LabelSet
) -> None:
    """Refuse pairs that the set does not have: their judgments would be lost."""
    known = {(item.query_id, item.item_id) for item in items}
    for file in imported:
        lacking = [told for told in file.judgments if (told.query_id, told.item_id) not in known]
        if lacking:
            first, count = lacking[0], len({(told.query_id, told.item_id) for told in lacking})
            more = f" and {count - 1:,} more of its pairs are" if count > 1 else " is"
            raise InputError(
                f"query {first.query_id!r}, item {first.item_id!r}{more} not in label set"
                f" {label_set.id} ({label_set.name}); leave {'them' if count > 1 else 'it'} out, or"
                " make a set of the file with --name",
                where=first.place,
            )


def _rows(imported: Sequence[ImportedFile], items: Sequence[LabelItem]) -> list[NewJudgment]:
    places = {(item.query_id, item.item_id): item.position for item in items}
    return [
        NewJudgment(
            places[judgment.query_id, judgment.item_id],
            judgment.rater,
            judgment.grade,
            judgment.rationale,
            judgment.source,
            judgment.given_at,
            judgment.withdrawn_at,
        )
        for file in imported
        for judgment in file.judgments
    ]


def label_conflicts(
    label_set: str | None = None,
    *,
    include_decided: bool = False,
    limit: int | None = None,
    store: Where = None,
    waiting: Waiting | None = None,
) -> LabelResult:
    """Return the pairs that raters grade differently, with what each of them said."""
    with open_store(store, waiting) as opened:
        chosen = choose_set(opened, label_set)
        items, judgments = opened.label_items(chosen.id), opened.judgments(chosen.id)
    differing = conflicts(items, judgments)
    texts = {item.query_id: item.query for item in items}
    listed = [one for one in differing if include_decided or one.decision is None]
    body = {
        "set": set_dict(chosen),
        "total": len(differing),
        "open": sum(conflict.decision is None for conflict in differing),
        "listed": len(listed),
        "conflicts": [
            {**conflict.to_dict(), "query": texts[conflict.item.query_id]}
            for conflict in listed[:limit]
        ],
    }
    return LabelResult(body, label_pages.conflicts_page)


def adjudicate(
    query: str,
    item: str,
    grade: float | None,
    *,
    rater: str,
    rationale: str = "",
    label_set: str | None = None,
    store: Where = None,
    waiting: Waiting | None = None,
) -> LabelResult:
    """Decide on the grade of a pair; None decides that it gets none."""
    name, why = rater_name(rater), rationale_text(rationale)
    with open_store(store, waiting) as opened:
        chosen = choose_set(opened, label_set)
        items = opened.label_items(chosen.id)
        at = _position(items, chosen, query, item)
        kept = opened.judge(chosen.id, at, name, grade, rationale=why, source=ADJUDICATION)
    body = {"set": set_dict(chosen), "act": "decided", "judgment": _judgment(kept, items)}
    return LabelResult(body, label_pages.judgment_page)


def withdraw_judgment(
    query: str,
    item: str,
    *,
    rater: str,
    label_set: str | None = None,
    store: Where = None,
    waiting: Waiting | None = None,
) -> LabelResult:
    """Withdraw the newest judgment of a rater on a pair."""
    name = rater_name(rater)
    with open_store(store, waiting) as opened:
        chosen = choose_set(opened, label_set)
        items = opened.label_items(chosen.id)
        at = _position(items, chosen, query, item)
        by_rater = opened.judgments(chosen.id, rater=name)
        on_pair = [judgment for judgment in by_rater if judgment.position == at]
        if not on_pair:
            raise UsageError(
                f"{name} has no judgment that counts on query {query!r}, item {item!r} in label"
                f" set {chosen.id}; karat labels log lists all judgments"
            )
        taken = opened.withdraw(chosen.id, on_pair[-1].id)
    body = {"set": set_dict(chosen), "act": "withdrawn", "judgment": _judgment(taken, items)}
    return LabelResult(body, label_pages.judgment_page)


def _position(items: Sequence[LabelItem], label_set: LabelSet, query: str, item: str) -> int:
    positions = {(one.query_id, one.item_id): one.position for one in items}
    if (query, item) in positions:
        return positions[query, item]
    queries = {one.query_id for one in items}
    if query not in queries:
        raise unknown(f"query in label set {label_set.id}", query, sorted(queries))
    of_query = sorted(one.item_id for one in items if one.query_id == query)
    raise unknown(f"item of query {query!r} in label set {label_set.id}", item, of_query)


def _judgment(judgment: Judgment, items: Sequence[LabelItem]) -> dict[str, Any]:
    item = items[judgment.position]
    return {**judgment.document(), "query_id": item.query_id, "item_id": item.item_id}


def label_agreement(
    label_set: str | None = None, store: Where = None, *, waiting: Waiting | None = None
) -> LabelResult:
    """Return how far every two raters agree, all of them together, and what a majority leaves."""
    with open_store(store, waiting) as opened:
        chosen = choose_set(opened, label_set)
        items, judgments = opened.label_items(chosen.id), opened.judgments(chosen.id)
    by_majority = majority(items, judgments)
    body = {
        "set": set_dict(chosen),
        "few": FEW,
        "raters": [rater.to_dict() for rater in progress(chosen.size, judgments)],
        "pairs": [pair.to_dict() for pair in agreement(judgments)],
        "alpha": alphas(judgments),
        "majority": {**by_majority.counts(), "adjudicated": by_majority.adjudicated},
    }
    return LabelResult(body, label_pages.agreement_page)


def label_log(
    label_set: str | None = None,
    *,
    rater: str | None = None,
    limit: int | None = None,
    store: Where = None,
    waiting: Waiting | None = None,
) -> LabelResult:
    """Return every judgment, the newest first, and whether it counts, or was replaced."""
    name = None if rater is None else rater_name(rater)
    with open_store(store, waiting) as opened:
        chosen = choose_set(opened, label_set)
        items = opened.label_items(chosen.id)
        judgments = opened.judgments(chosen.id, rater=name, every=True)
        counting = {judgment.id for judgment in opened.judgments(chosen.id, rater=name)}
    if not judgments:
        who = "nobody has" if name is None else f"{name} has not"
        raise UsageError(f"{who} judged anything in label set {chosen.id} ({chosen.name})")

    def state(judgment: Judgment) -> str:
        if judgment.withdrawn_at is not None:
            return "withdrawn"
        return "counts" if judgment.id in counting else "replaced"

    body = {
        "set": set_dict(chosen),
        "total": len(judgments),
        "judgments": [
            {**_judgment(judgment, items), "state": state(judgment)}
            for judgment in judgments[::-1][:limit]
        ],
    }
    return LabelResult(body, label_pages.log_page)
