"""What the commands of analyses share: an Evaluation made of their options, and a result shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import typer

from karat.analysis.runs import Analysis
from karat.cli.options import parse_settings
from karat.cli.progress import progress
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.cli.streams import heed_interrupts
from karat.errors import UsageError
from karat.evaluation.evaluation import Evaluation
from karat.formats.field_mapping import Fields
from karat.pages.result import to_json
from karat.report.outputs import (
    PAGE_FORMS,
    PICTURES,
    Form,
    Output,
    parse_outputs,
    write_outputs,
    write_stdout,
)

CSV = Form("csv", ".csv", "one row per system, segment, measure and k", "karat.pages.result.to_csv")
PNG = Form("png", ".png", "the charts as a picture", "karat.pages.result.to_png")
MISSES = Form(
    "misses", None, "every miss: query, retrieved, relevant", "karat.analysis.triage.to_misses"
)
SVG = Form("svg", ".svg", "the charts as a drawing", "karat.pages.result.to_svg")


def open_evaluation(
    runs: Sequence[str],
    gold: str,
    *,
    queries: str | None = None,
    corpus: str | None = None,
    measures: Sequence[str] | None = None,
    profile: str = "karat",
    settings: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    seed: str | None = None,
    strict: bool = False,
    run_format: str | None = None,
    gold_format: str | None = None,
    field: Sequence[str] | None = None,
    index_cache: Path | None = None,
    quiet: bool = False,
) -> Evaluation:
    """Read and check what the options of a command name, except the runs."""
    heed_interrupts()
    if [*runs, gold, queries, corpus].count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    shown: Callable[[Sequence[str]], AbstractContextManager[Callable[[str], None]]]
    shown = partial(progress, quiet=quiet)
    return Evaluation(
        gold,
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=parse_settings(settings or []),
        measures=measures or None,
        by=by or [],
        fields=Fields.parse(field or []),
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        index_cache=index_cache,
        notify=lambda message: None if quiet else typer.echo(message, err=True),
        progress=shown,
    )


def parse_page_outputs(
    texts: Sequence[str] | None,
    inputs: Sequence[str | None],
    *,
    as_json: bool,
    more_forms: Sequence[Form] = (),
) -> list[Output]:
    """Parse every ``-o``; a picture that could not be drawn is refused before any work."""
    forms: Mapping[str, Form] = {**PAGE_FORMS, **{form.name: form for form in more_forms}}
    named = [name for name in inputs if name is not None]
    outputs = parse_outputs(texts or [], inputs=named, stdout_taken=as_json, forms=forms)
    if any(output.form.name in PICTURES for output in outputs):
        from karat.pages.charts import check_charts

        check_charts()
    return outputs


def publish(result: Analysis, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, and print the page unless something else goes to standard output.

    Exits with 3 if the result says nothing.
    """
    write_outputs(outputs, result)
    if as_json:
        write_stdout(to_json(result))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.pages.terminal import show_page, standard_console

        show_page(result.page(), standard_console())
    if reason := result.unmeasured:
        typer.echo(f"karat: cannot tell: {reason}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)
