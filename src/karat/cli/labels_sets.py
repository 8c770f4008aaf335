"""The store behind ``karat labels``: opened, a set of it chosen, listed or made, and told of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from karat.cli.saving import tell_waiting
from karat.errors import UsageError, unknown
from karat.formats.files import refuse_no_path
from karat.judging.label_sets import read_pool
from karat.judging.labelling import decisions, progress
from karat.judging.resolving import conflicts
from karat.reports.outputs import write_stdout
from karat.reports.pages import Page, show_page
from karat.reports.to_json import dumps
from karat.store import (
    AddedSet,
    Judgment,
    LabelItem,
    LabelSet,
    NameTakenError,
    NewJudgment,
    NoHistoryError,
    Store,
)
from karat.store.label_records import checked_set_name

Document = dict[str, Any]
_MAKE = "make a set with karat labels new POOL, or with karat labels import FILE --name NAME"
# So many sets are named where one must be chosen.
_TOLD = 10


def show(
    document: Document, page: Callable[[Mapping[str, Any]], Page], *, as_json: bool, quiet: bool
) -> None:
    """Print a document as JSON, or the page on it."""
    if as_json:
        write_stdout(dumps(document))
    elif not quiet:
        from karat.reports.terminal import standard_console

        show_page(page(document), standard_console())


@contextmanager
def opened(where: str | None) -> Iterator[Store]:
    """A store that lasts; one that is not there is told of in the words of labels."""
    with Store.open(where, waiting=tell_waiting) as store:
        if not store.lasting:
            raise UsageError("a store in memory keeps nothing; name a file")
        try:
            yield store
        except NoHistoryError as error:
            told = f"no judgments are kept here; {_MAKE}"
            raise NoHistoryError(told, where=error.where) from None


def chosen(store: Store, which: str | None) -> LabelSet:
    """The set of an id or a name, or the only one that there is."""
    sets = store.label_sets()
    if not sets:
        raise UsageError(f"there is no label set in {store.name} yet; {_MAKE}")
    if which is None:
        if len(sets) > 1:
            raise UsageError(
                f"there are {len(sets)} label sets; say which with --set: {_any(sets)}"
            )
        return sets[0]
    found = [one for one in sets if str(one.id) == which] or [
        one for one in sets if one.name == which.strip()
    ]
    if not found:
        raise unknown("label set", which, [str(one.id) for one in sets] + [s.name for s in sets])
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} label sets are called {which!r}; say which by id: {_any(found)}"
        )
    return found[0]


def position_of(items: list[LabelItem], one: LabelSet, query: str, item: str) -> int:
    """Where a pair is in a set."""
    at = {(each.query_id, each.item_id): each.position for each in items}
    if (query, item) in at:
        return at[query, item]
    queries = {each.query_id for each in items}
    if query not in queries:
        raise unknown(f"query in label set {one.id}", query, sorted(queries))
    own = sorted(each.item_id for each in items if each.query_id == query)
    raise unknown(f"item of query {query!r} in label set {one.id}", item, own)


def listed(where: str | None) -> Document:
    """Every set with what was judged, where raters differ, and who is how far."""
    with opened(where) as store:
        sets = store.label_sets()
        return {"sets": [_told(store, one) for one in sets]}


def made_of_pool(path: str, name: str | None, where: str | None) -> Document:
    """The set of a pool's pairs, made now or before."""
    refuse_no_path(path)
    if name is not None:
        checked_set_name(name)
    items = [
        LabelItem(one.query_id, one.item_id, one.query, one.text, facts=one.facts)
        for one in read_pool(path)
    ]
    file = "stdin" if path == "-" else Path(path).name
    with opened(where) as store:
        made = made_or_found(
            store,
            file.split(".")[0] if name is None else name,
            items,
            about=f"From the pool {file}.",
        )
    return {"set": set_document(made.set), "new": made.new}


def made_or_found(
    store: Store,
    name: str,
    items: list[LabelItem],
    judgments: Sequence[NewJudgment] = (),
    *,
    about: str,
) -> AddedSet:
    """The set of some items with judgments, made now or before."""
    try:
        return store.add_judged_set(name, items, judgments, about=about)
    except NameTakenError as error:
        told = f"{error} with --name, or add judgments to that one: karat labels import … --set"
        raise UsageError(told) from None


def set_document(one: LabelSet) -> Document:
    """What is told of a set beside everything else."""
    return {"id": one.id, "name": one.name, "size": one.size}


def _told(store: Store, one: LabelSet) -> Document:
    items, said = store.label_items(one.id), store.judgments(one.id)
    found = conflicts(items, said)
    return {
        **one.document(),
        "judged": len({each.position for each in said}),
        "conflicts": len(found),
        "open": sum(each.decision is None for each in found),
        "decided": len(decisions(said)),
        "raters": [each.document() for each in progress(one.size, said)],
        "sources": _sources(said),
        "readable": bool(items and items[0].text.strip()),
    }


def _sources(said: list[Judgment]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in said:
        counts[one.source] = counts.get(one.source, 0) + 1
    return dict(sorted(counts.items()))


def _any(sets: list[LabelSet]) -> str:
    told = ", ".join(f"{one.id} ({one.name})" for one in sets[:_TOLD])
    return told + (", …" if len(sets) > _TOLD else "")
