"""``karat demo``, ``karat init`` and ``karat check``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import karat
from karat.cli.command import argument, command, flag, option
from karat.cli.options import (
    CORPUS,
    EXIT_FAILED,
    FIELDS,
    QUIET,
    SETTINGS,
    PageOptions,
    check_stdin,
    echo,
    parse_settings,
)
from karat.cli.streams import heed_interrupts

# How many findings and reasons are shown; karat diagnose has all.
_MOST_SHOWN = 3
_NEXT = """
Try next:
  {cd}
  karat diagnose runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag
  karat triage runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag
  karat stages runs/reranked.jsonl --gold dataset.jsonl --profile rag --by language
  karat check karat.yaml
  karat init            # the other recipes
"""


@command("demo")
def demo(
    *,
    folder: str = argument("DIR", "The folder for its files. Default: karat-demo.", "karat-demo"),
    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml or trec:out.txt;"
        " repeatable.",
    ),
    quiet: bool = QUIET,
) -> int:
    """Take the tour: a help centre in three languages, and a reranker under test.

    Writes the recipe rag into a folder, searches it with two systems, compares them, checks the
    gates of the new one, and reports what to fix next. The report stays in the folder.

    Examples:
      karat demo
      karat demo path/to/folder
      karat demo -o report.json
    """
    from karat.cli.evaluate import show_search
    from karat.cli.progress import counting
    from karat.reports.outputs import OWN_FORMS, parse_outputs, write_outputs

    heed_interrupts()
    parse_outputs(output or [], stdout_taken=not quiet, forms=OWN_FORMS)
    recipe = karat.init("rag", folder, remedy="name another folder: karat demo DIR")
    project = karat.Project(recipe.folder / "karat.yaml", open_bar=partial(counting, quiet=quiet))
    files = project.outputs(output or [], stdout_taken=not quiet, forms=OWN_FORMS)
    forms = [output.form for output in files]
    report = project.run(forms=forms, report_search=partial(show_search, quiet=quiet))
    write_outputs(files, report)
    if not quiet:
        _show_demo(report, recipe)
    return 0


def _show_demo(report: karat.Report, recipe: karat.WrittenRecipe) -> None:
    """Print the verdicts, three findings, and next commands."""
    place = recipe.folder.as_posix()
    tables = report.tables
    items = tables.corpus.frame.height if tables and tables.corpus else 0
    queries = tables.queries.frame.height if tables and tables.queries else 0
    names = " and ".join(system.name for system in report.systems)
    echo(f"A help centre of {items:,} chunks in three languages, {queries:,} questions,")
    echo(f"two systems: {names}.\n")
    for sentence in report.page().sentences:
        echo(sentence.text)
        for reason in sentence.reasons[:_MOST_SHOWN]:
            echo(f"  {reason}")
    echo("\nWhat to fix next:")
    for number, finding in enumerate((report.findings or ())[:_MOST_SHOWN], 1):
        echo(f"  {number}. {finding}")
    echo(f"\nThe report: {place}/out/report.html (open it in a browser)")
    echo(f"The same as Markdown and JSON: {place}/out/report.md, {place}/out/report.json")
    echo(_NEXT.format(cd=recipe.cd), end="")


@command("init")
def init(
    *,
    recipe: str | None = argument("RECIPE", "The recipe; without one, all are listed.", None),
    folder: str | None = argument("DIR", "The folder. Default: one named like the recipe.", None),
    force: bool = flag("--force", "Replace files that differ."),
    as_json: bool = flag("--json", "Print the recipes, or the files written, as JSON."),
    quiet: bool = flag("--quiet", "Print nothing."),
) -> int:
    """Write a recipe into a folder: data, a karat.yaml and a README, ready for karat run.

    Files with other content are replaced only with --force.

    Examples:
      karat init
      karat init rag && cd rag && karat run
      karat init minimal path/to/folder
    """
    document: Mapping[str, Any]
    if recipe is None:
        document = karat.recipes()
        width = max(map(len, document))
        lines = [f"  {name:<{width}}  {about}" for name, about in document.items()]
        lines.append("\nkarat init RECIPE writes one; run it with karat run in its folder")
    else:
        done = karat.init(recipe, folder, force=force)
        document = done.to_dict()
        lines = [f"  {(done.folder / name).as_posix()}" for name in done.written]
        if done.same:
            lines.append(f"  {len(done.same):,} files already exist, unchanged")
        lines.append(f"\nnext: {done.cd} && karat run   (see README.md)")
    if as_json:
        echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif not quiet:
        echo("\n".join(lines))
    return 0


@dataclass(frozen=True, kw_only=True)
class CheckOutput(PageOptions):
    """How the result of a check is shown."""

    quiet: bool = flag("--quiet", "Print nothing; only set the exit code.")


@command("check")
def check(
    output: CheckOutput,
    *,
    config: str | None = argument(
        "CONFIG", "A karat.yaml. Default: the one in this folder, unless --gold is given.", None
    ),
    gold: str | None = option("--gold", "FILE", "The judgments: qrels or any supported format."),
    queries: str | None = option("--queries", "FILE", "Queries with texts and attributes."),
    corpus: str | None = CORPUS,
    gates: str | None = option("--gates", "FILE", "Gates to compare with what can be reached."),
    by: list[str] | None = option("--by", "COLUMN", "Also look for small segments; repeatable."),
    runs: list[str] | None = option("--run", "RUN", "Two runs; their difference gives the spread."),
    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "Measures to check; the first gives the spread. Default: the profile's.",
    ),
    profile: str | None = option("--profile", "NAME", "Conventions for measures and gaps."),
    settings: list[str] | None = SETTINGS,
    spread: float | None = option(
        "--spread",
        "SD",
        "The spread of differences to assume where there are no runs. Default: 0.35.",
        least=0,
        most=1e9,
    ),
    field: list[str] | None = FIELDS,
    strict: bool = flag("--strict", "Exit with 1 for warnings too."),
) -> int:
    """Check whether an eval set is sound.

    Looks for contradictions, duplicates, leaks, unknown ids and unreachable targets, and reports
    what difference the set can detect. Exits with 1 when something is wrong.

    Examples:
      karat check --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
      karat check karat.yaml --strict
      karat check --gold eval.jsonl --field gold=gold_ids
      karat check --gold qrels.txt --run bm25.trec --run dense.jsonl -m nDCG@10
    """
    from karat.cli.progress import progress

    heed_interrupts()
    check_stdin([gold, queries, corpus, gates, *(runs or [])])
    result = karat.check_eval_set(
        config,
        gold=gold,
        queries=queries,
        corpus=corpus,
        gates=gates,
        by=by or [],
        runs=runs or [],
        measures=measures,
        profile=profile,
        settings=parse_settings(settings or []),
        spread=spread,
        fields=field,
        strict=strict,
        progress=partial(progress, quiet=output.quiet),
    )
    output.publish(result)
    return EXIT_FAILED if result.body["verdict"] == "unsound" else 0
