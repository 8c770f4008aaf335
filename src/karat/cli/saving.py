"""``--save``, ``--tag``, ``--store`` and ``--baseline``, and what commands do with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.report.document import Report

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


@dataclass(frozen=True, kw_only=True)
class SavingOptions:
    """Options that save a report in a store, with tags."""

    save: Save = False
    tag: Tags = None
    store: StoreUrl = None

    def files(self, *, used: bool = False) -> list[str]:
        """Return the files of the store, if it is used; no output may take their place."""
        return store_files(self.store, used=used or self.save)

    def check(self) -> None:
        """Refuse now, before any work, what could not be saved later."""
        if not self.save:
            if self.tag:
                raise UsageError("--tag is for what is saved; add --save")
            return
        from karat.store import Store, checked_tags

        checked_tags(self.tag or [])
        with Store.open(self.store) as opened:
            if not opened.lasting:
                raise UsageError("a store in memory keeps nothing; name a file")
            opened.check()

    def keep(self, report: Report, *, skip: Collection[str] = ()) -> None:
        """Save the report, if ``--save`` is given."""
        if self.save:
            save_report(report, store=self.store, tags=self.tag, skip=skip)


def store_files(store: str | None, *, used: bool) -> list[str]:
    """Return the files of a used store, which no output may overwrite."""
    if not used:
        return []
    from karat.store.place import place_of

    return place_of(store).files()


def tell_waiting(name: str) -> None:
    """Report that another process holds the store."""
    typer.echo(f"karat: {name} is in use by another process; waiting for it", err=True)


def save_report(
    report: Report,
    *,
    store: str | None,
    tags: Sequence[str] | None = None,
    skip: Collection[str] = (),
) -> None:
    """Save every system of a report, except those in ``skip``, and print the ids.

    Call it before the exit code is decided: a failed gate is part of the history too.
    """
    from dataclasses import replace

    from karat.evaluation.systems import distinct_names
    from karat.report.html.view import view_of
    from karat.store import Store, revision_here

    systems = [system for system in report.systems if system.name not in skip]
    if not any(summary.n for system in systems for summary in system.summaries.values()):
        typer.echo("karat: warning: nothing was saved: not one query could be scored", err=True)
        return
    # A baseline that is not saved again leaves its name to the system compared with it.
    names = distinct_names([system.scores.system for system in systems])
    with Store.open(store, waiting=tell_waiting) as opened:
        ids = opened.save(
            [replace(one.scores, system=name) for one, name in zip(systems, names, strict=True)],
            report.to_dict(),
            tags=tags or (),
            revision=revision_here(),
            summaries=[system.summaries for system in systems],
            parts=view_of(report).parts(),
        )
        typer.echo(f"saved as {', '.join(map(str, ids))} in {opened.name}", err=True)
