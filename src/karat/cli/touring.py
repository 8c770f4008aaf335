"""The tour of the built-in example: laid down, run, and told in a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from karat.cli.recipes import going_to, lay_down, recipe_files
from karat.cli.running import Request, outputs_of, run_all
from karat.formats.yamls import parse_yaml
from karat.reports.document import Report
from karat.reports.headlines import headlines
from karat.reports.outputs import OWN_FORMS, forms_in, parse_outputs, write_outputs

_RECIPE = "rag"
# So many findings are read; diagnose has all.
_MOST = 3


@dataclass(frozen=True, eq=False)
class Tour:
    """What there is to tell: the report, what to fix next, and where everything is."""

    report: Report
    to_fix: Sequence[str]
    folder: Path


def tour(folder: str, outputs: Sequence[str], *, quiet: bool) -> Tour:
    """Lay the example down, run it, and look into the system that is to be shipped."""
    _check(outputs, Path(folder), stdout_taken=not quiet)
    place = lay_down(_RECIPE, folder, remedy="name another folder: karat demo DIR").folder
    request = Request(config=str(place / "karat.yaml"), quiet=quiet)
    files = outputs_of(request, outputs, stdout_taken=not quiet, forms=OWN_FORMS)
    report = run_all(request, fresh=False, in_full=True, indexed=True, forms=forms_in(files))
    write_outputs(files, report)
    return Tour(report, (report.findings or ())[:_MOST], place)


def _check(outputs: Sequence[str], place: Path, *, stdout_taken: bool) -> None:
    """Refuse what cannot be written before there is a folder: the example's own files are known."""
    contents = dict(recipe_files(_RECIPE))
    config = parse_yaml(contents["karat.yaml"].decode(), "karat.yaml").data
    logs = (f"runs/{name}.jsonl" for name in config["systems"])
    parse_outputs(
        [*(str(place / name) for name in config["outputs"]), *outputs],
        inputs=[str(place / name) for name in (*contents, *logs)],
        stdout_taken=stdout_taken,
        forms=OWN_FORMS,
    )


def show_tour(shown: Tour) -> None:
    """Print the verdicts, three findings, and where to go on."""
    place = shown.folder.as_posix()
    tables = shown.report.tables
    items = tables.corpus.frame.height if tables and tables.corpus else 0
    asked = tables.queries.frame.height if tables and tables.queries else 0
    names = " and ".join(system.name for system in shown.report.systems)
    typer.echo(f"A help centre of {items:,} chunks in three languages, {asked:,} questions,")
    typer.echo(f"two systems: {names}.\n")
    for one in headlines(shown.report.results()):
        typer.echo(f"{one.word}  {one.about}")
        for reason in one.because[:_MOST]:
            typer.echo(f"  {reason}")
    typer.echo("\nWhat to fix next:")
    for number, sentence in enumerate(shown.to_fix, 1):
        typer.echo(f"  {number}. {sentence}")
    typer.echo(f"\nThe report: {place}/out/report.html (open it in a browser)")
    typer.echo(f"The same in words and as data: {place}/out/report.md, {place}/out/report.json")
    typer.echo(_NEXT.format(going=going_to(shown.folder)), nl=False)


_NEXT = """
Try next:
  {going}
  karat diagnose runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag
  karat triage runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag
  karat stages runs/reranked.jsonl --gold dataset.jsonl --profile rag --by language
  karat check karat.yaml
  karat init            # the other recipes
"""
