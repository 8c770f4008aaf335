"""What raters said of a set: where they differ, how far they agree, decisions, and the log."""

from __future__ import annotations

import re
from typing import Any

from karat.cli.labels_sets import Document, chosen, opened, position_of, set_document
from karat.cli.numbers import whole
from karat.errors import UsageError
from karat.formats.labels import ADJUDICATION
from karat.judging.labelling import FEW, agreement, majority, progress, rater_name, rationale_text
from karat.judging.resolving import alphas
from karat.judging.resolving import conflicts as found_in
from karat.store import Judgment, LabelItem

# How many a terminal shows unless told.
_SHOWN = 20
_NO_GRADE = "none"
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?")


def found_conflicts(
    where: str | None, which: str | None, *, every: bool, limit: str | None, as_json: bool
) -> Document:
    """The pairs that raters differ on, with the texts of their queries."""
    most = _most(limit, as_json=as_json)
    with opened(where) as store:
        one = chosen(store, which)
        items, said = store.label_items(one.id), store.judgments(one.id)
    found = found_in(items, said)
    texts = {item.query_id: item.query for item in items}
    wanted = [each for each in found if every or each.decision is None]
    return {
        "set": set_document(one),
        "total": len(found),
        "open": sum(each.decision is None for each in found),
        "listed": len(wanted),
        "conflicts": [
            {**each.document(), "query": texts[each.item.query_id]} for each in wanted[:most]
        ],
    }


def decide(
    where: str | None,
    which: str | None,
    query: str,
    item: str,
    *,
    grade: str,
    rater: str,
    rationale: str,
) -> Document:
    """Keep a decision on a pair."""
    number, name, why = _grade(grade), rater_name(rater), rationale_text(rationale)
    with opened(where) as store:
        one = chosen(store, which)
        items = store.label_items(one.id)
        at = position_of(items, one, query, item)
        kept = store.judge(one.id, at, name, number, rationale=why, source=ADJUDICATION)
    return {"set": set_document(one), "act": "decided", "judgment": _judgment(kept, items)}


def take_back(
    where: str | None, which: str | None, query: str, item: str, *, rater: str
) -> Document:
    """Withdraw the newest judgment of a rater on a pair."""
    name = rater_name(rater)
    with opened(where) as store:
        one = chosen(store, which)
        items = store.label_items(one.id)
        at = position_of(items, one, query, item)
        own = [each for each in store.judgments(one.id, rater=name) if each.position == at]
        if not own:
            raise UsageError(
                f"{name} has no judgment that counts on query {query!r}, item {item!r} in label"
                f" set {one.id}; karat labels log lists those that there are"
            )
        taken = store.withdraw(one.id, own[-1].id)
    return {"set": set_document(one), "act": "withdrawn", "judgment": _judgment(taken, items)}


def agreed(where: str | None, which: str | None) -> Document:
    """How far every two raters agree, all of them together, and what a majority would leave."""
    with opened(where) as store:
        one = chosen(store, which)
        items, said = store.label_items(one.id), store.judgments(one.id)
    found = majority(items, said)
    return {
        "set": set_document(one),
        "few": FEW,
        "raters": [each.document() for each in progress(one.size, said)],
        "pairs": [each.document() for each in agreement(said)],
        "alpha": alphas(said),
        "majority": {**found.counts(), "adjudicated": found.adjudicated},
    }


def logged(
    where: str | None,
    which: str | None,
    *,
    rater: str | None,
    limit: str | None,
    as_json: bool,
) -> Document:
    """Every judgment, the newest first, and whether it counts."""
    most = _most(limit, as_json=as_json)
    name = None if rater is None else rater_name(rater)
    with opened(where) as store:
        one = chosen(store, which)
        items = store.label_items(one.id)
        said = store.judgments(one.id, rater=name, every=True)
        counts = {each.id for each in store.judgments(one.id, rater=name)}
    if not said:
        whose = "nobody has said anything of" if name is None else f"{name} has said nothing of"
        raise UsageError(f"{whose} label set {one.id} ({one.name})")
    newest = said[::-1][:most]
    return {
        "set": set_document(one),
        "total": len(said),
        "judgments": [{**_judgment(each, items), "state": _state(each, counts)} for each in newest],
    }


def _judgment(one: Judgment, items: list[LabelItem]) -> dict[str, Any]:
    item = items[one.position]
    return {**one.document(), "query_id": item.query_id, "item_id": item.item_id}


def _state(one: Judgment, counts: set[int]) -> str:
    if one.withdrawn_at is not None:
        return "withdrawn"
    return "counts" if one.id in counts else "replaced"


def _grade(text: str) -> float | None:
    if text == _NO_GRADE:
        return None
    # Python reads more as a number than people write.
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"--grade is {text!r}; give a number from 0 to 100, or {_NO_GRADE}")
    return float(text)


def _most(limit: str | None, *, as_json: bool) -> int | None:
    if limit is not None:
        return whole("--limit", limit)
    return None if as_json else _SHOWN
