"""``--save``, ``--tag``, ``--store`` and ``--baseline``, and what commands do with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

import karat
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.columns import Source
    from karat.measures.scores import Scores
    from karat.reports.document import Report

Save = Annotated[bool, typer.Option("--save", help="Keep the evaluation in the store.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Save it under this tag, such as main; repeatable."),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="A file or SQLAlchemy URL. Default: $KARAT_STORE, else .karat/history.db.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline", metavar="TAG|ID", help="Compare with a saved evaluation: its tag, or its id."
    ),
]


def check_saving(*, save: bool, store: str | None, tags: Sequence[str] | None) -> None:
    """Refuse before any work what could not be saved after it."""
    if not save:
        if tags:
            raise UsageError("--tag is for what is saved; add --save")
        return
    from karat.store import Store, checked_tags

    checked_tags(tags or [])
    with Store.open(store) as opened:
        if not opened.lasting:
            raise UsageError("a store in memory keeps nothing; name a file")
        opened.check()


def store_files(store: str | None, *, used: bool) -> list[str]:
    """The files of the store that a command uses, which none of its outputs may take."""
    if not used:
        return []
    from karat.store.place import place_of

    return place_of(store).files()


def tell_waiting(name: str) -> None:
    """Say that another process is in the way, before anybody wonders."""
    typer.echo(f"karat: {name} is in use by another process; waiting for it", err=True)


def save_report(
    report: Report,
    *,
    store: str | None,
    tags: Sequence[str] | None = None,
    skip: Collection[str] = (),
) -> None:
    """Save every system of a report, except those named in ``skip``, and say as what.

    Belongs before the exit code is decided: what fails a gate is part of the history too.
    """
    from dataclasses import replace

    from karat.analysis.contenders import distinct_names
    from karat.reports.html.view import view_of
    from karat.store import Store, revision_here

    systems = [system for system in report.systems if system.name not in skip]
    if not any(one.n for system in systems for one in system.summaries.values()):
        typer.echo("karat: warning: nothing was saved: not one query could be scored", err=True)
        return
    # A baseline that is not saved again leaves its name to the system compared with it.
    names = distinct_names([system.scores.system for system in systems])
    with Store.open(store, waiting=tell_waiting) as opened:
        ids = opened.save(
            [replace(one.scores, system=name) for one, name in zip(systems, names, strict=True)],
            report.document(),
            tags=tags or (),
            revision=revision_here(),
            summaries=[system.summaries for system in systems],
            parts=view_of(report).parts(),
        )
        typer.echo(f"saved as {', '.join(map(str, ids))} in {opened.name}", err=True)


def with_baseline(
    ref: str,
    runs: Sequence[Scores],
    *,
    store: str | None,
    gold: Source,
    queries: Source | None = None,
    corpus: Source | None = None,
    primary: str | None = None,
) -> list[Scores]:
    """The stored baseline and the runs, all by the measures that they share.

    Refuses a baseline that was scored on other gold, queries or conventions, or not by the
    measure that decides. Warns of one whose inputs are stale.
    The baseline is called after its tag, as in bm25@main.
    """
    from dataclasses import replace

    from karat.store import Store, differs, in_order_of, same_run, shared, stale

    with Store.open(store) as opened:
        stored = opened.baseline(ref)
    stored = replace(stored, scores=in_order_of(stored.scores, runs[0]))
    found = dict.fromkeys(one for run in runs for one in differs(stored, run))
    wrong = [str(one) for one in found if one.what != "measures"]
    if wrong:
        raise UsageError(
            f"the baseline {ref} cannot be compared with these runs: {'; '.join(wrong)};"
            " score it again and save it"
        )
    _check_deciding(ref, stored.scores, runs[0], primary)
    warnings = stale(
        stored, gold=gold, queries=queries, corpus=corpus, runs=runs, version=karat.__version__
    )
    for sentence in (*map(str, found), *warnings):
        typer.echo(f"karat: warning: baseline {ref}: {sentence}", err=True)
    baseline = replace(stored.scores, system=f"{stored.scores.system}@{ref}")
    same = same_run(stored, runs)
    if same is not None and same.conventions.order == baseline.conventions.order:
        # Lists are not stored, but these are the very ones.
        baseline = replace(baseline, lists=same.lists)
    return shared(baseline, runs)


def _check_deciding(ref: str, baseline: Scores, run: Scores, primary: str | None) -> None:
    """Refuse a baseline without the measure that decides: another would, and nobody chose it."""
    from karat.analysis.verdicts import Rule, primary_of

    deciding = primary_of(Rule(primary=primary), run.measures, run.conventions).measure
    if deciding not in map(str, baseline.measures):
        raise UsageError(
            f"the baseline {ref} was not scored by {deciding}, the measure that decides;"
            " name another with --primary, or score it again and save it"
        )
