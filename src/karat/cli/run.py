"""``karat run``: search, evaluate, compare, gate and report, as a karat.yaml says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from karat.cli.command import command
from karat.cli.options import (
    Fields,
    NoRegression,
    OutputOptions,
    RequireVerdict,
    Settings,
    parse_settings,
)
from karat.cli.saving import SavingOptions
from karat.cli.search import ConfigFile, Systems

if TYPE_CHECKING:
    from karat.retrieve.search import SearchResult

Fresh = Annotated[
    bool, typer.Option("--fresh", help="Ask every system again, even where nothing changed.")
]

EXAMPLES = """\b
Examples:
  karat run
  karat run path/to/karat.yaml -o report.md
  karat run --system bm25 --system hybrid --fresh
  karat run --set rel=2 --set seed=7
  karat run --json
"""


@command
def run(
    output: OutputOptions,
    saving: SavingOptions,
    config: ConfigFile = None,
    system: Systems = None,
    field: Fields = None,
    settings: Settings = None,
    fresh: Fresh = False,
    no_regression: NoRegression = None,
    require_verdict: RequireVerdict = False,
) -> None:
    """Do what a karat.yaml says: search, evaluate, compare, hold against gates, report.

    A log whose system, files, corpus and queries are unchanged is used again, an interrupted
    one is resumed; a live system (http, python, a store) is asked again unless its
    index_version says what it is. The first of several systems is the baseline of the
    comparison, and the others are held against the gates; with compare: false all of them are,
    side by side.

    """
    from dataclasses import replace
    from functools import partial

    from karat.cli.progress import counting, progress
    from karat.cli.publish import publish
    from karat.cli.streams import heed_interrupts
    from karat.formats.field_mapping import Fields as FieldMapping
    from karat.project.project import Project
    from karat.report.outputs import forms_in, needs_document, needs_items

    heed_interrupts()
    quiet = output.quiet or output.as_json
    project = Project(
        config,
        systems=system,
        settings=parse_settings(settings or []),
        fields=FieldMapping.parse(field or []),
        no_regression=no_regression,
        notify=partial(typer.echo, err=True),
        progress=partial(progress, quiet=quiet),
        open_bar=partial(counting, quiet=quiet),
    )
    saving.check()
    texts = output.output or []
    outputs = project.outputs(texts, stdout_taken=output.as_json, taken=saving.files())
    time = output.time(outputs)
    report = project.run(
        fresh=fresh,
        full=saving.save or needs_document(outputs, output.as_json),
        indexed=saving.save or needs_items(outputs),
        forms=forms_in(outputs),
        report_search=partial(show_search, quiet=quiet),
    )
    report = replace(report, timestamp=time)
    saving.keep(report)
    publish(
        report,
        outputs,
        as_json=output.as_json,
        quiet=output.quiet,
        require_verdict=require_verdict,
        name_files=True,
    )


def show_search(result: SearchResult, *, quiet: bool) -> None:
    """Print what came of a system's calls."""
    if not quiet:
        for line in result.summary():
            typer.echo(line, err=True)
