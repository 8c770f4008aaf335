"""``karat demo``: the built-in help centre, from search to verdict and findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from karat.cli import options

if TYPE_CHECKING:
    from karat.report.document import Report

Folder = Annotated[
    str,
    typer.Argument(metavar="DIR", help="Where its files go. Default: karat-demo."),
]

EXAMPLES = """\b
Examples:
  karat demo
  karat demo path/to/folder
  karat demo -o report.json
"""

RECIPE = "rag"
# How many findings and reasons are shown; karat diagnose has all.
MOST_SHOWN = 3
NEXT = """
Try next:
  {cd}
  karat diagnose runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag
  karat triage runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag
  karat stages runs/reranked.jsonl --gold dataset.jsonl --profile rag --by language
  karat check karat.yaml
  karat init            # the other recipes
"""


def demo(
    folder: Folder = "karat-demo",
    output: options.OwnOutputs = None,
    quiet: options.Quiet = False,
) -> None:
    """Take the tour: a help centre in three languages, and a reranker that may have helped.

    Writes the recipe rag into a folder, searches it with two systems, compares them, checks the
    gates of the new one, and says what to fix next. The report stays in the folder.

    """
    from functools import partial

    from karat.cli.progress import counting
    from karat.cli.run import show_search
    from karat.cli.streams import heed_interrupts
    from karat.project.project import Project
    from karat.project.recipes import write_recipe
    from karat.report.outputs import OWN_FORMS, forms_in, write_outputs

    heed_interrupts()
    _check_outputs(output or [], Path(folder), stdout_taken=not quiet)
    place = write_recipe(RECIPE, folder, remedy="name another folder: karat demo DIR").folder
    project = Project(place / "karat.yaml", open_bar=partial(counting, quiet=quiet))
    files = project.outputs(output or [], stdout_taken=not quiet, forms=OWN_FORMS)
    report = project.run(
        indexed=True, forms=forms_in(files), report_search=partial(show_search, quiet=quiet)
    )
    write_outputs(files, report)
    if not quiet:
        _show(report, place)


def _check_outputs(outputs: Sequence[str], place: Path, *, stdout_taken: bool) -> None:
    """Refuse outputs that cannot be written before the folder exists; its files are known."""
    from karat.formats.settings import parse_yaml
    from karat.project.recipes import recipe_files
    from karat.report.outputs import OWN_FORMS, parse_outputs

    contents = dict(recipe_files(RECIPE))
    config = parse_yaml(contents["karat.yaml"].decode(), "karat.yaml").data
    logs = (f"runs/{name}.jsonl" for name in config["systems"])
    parse_outputs(
        [*(str(place / name) for name in config["outputs"]), *outputs],
        inputs=[str(place / name) for name in (*contents, *logs)],
        stdout_taken=stdout_taken,
        forms=OWN_FORMS,
    )


def _show(report: Report, folder: Path) -> None:
    """Print the verdicts, three findings, and what to try next."""
    from karat.evaluation.sentences import headlines
    from karat.project.recipes import cd_command

    place = folder.as_posix()
    tables = report.tables
    items = tables.corpus.frame.height if tables and tables.corpus else 0
    queries = tables.queries.frame.height if tables and tables.queries else 0
    names = " and ".join(system.name for system in report.systems)
    typer.echo(f"A help centre of {items:,} chunks in three languages, {queries:,} questions,")
    typer.echo(f"two systems: {names}.\n")
    for headline in headlines(report.results()):
        typer.echo(f"{headline.word}  {headline.about}")
        for reason in headline.because[:MOST_SHOWN]:
            typer.echo(f"  {reason}")
    typer.echo("\nWhat to fix next:")
    for number, sentence in enumerate((report.findings or ())[:MOST_SHOWN], 1):
        typer.echo(f"  {number}. {sentence}")
    typer.echo(f"\nThe report: {place}/out/report.html (open it in a browser)")
    typer.echo(f"The same in words and as data: {place}/out/report.md, {place}/out/report.json")
    typer.echo(NEXT.format(cd=cd_command(folder)), nl=False)
