"""``karat triage``: the worst queries beside their gold and BM25."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from karat.cli import options
from karat.errors import UsageError

CACHE, CONFIG = ".karat", "karat.yaml"

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN", help="The run to look into; - reads standard input."),
]
Measure = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What makes a query bad. Default: the profile's first, such as nDCG@10.",
    ),
]
Worst = Annotated[
    str, typer.Option("--worst", metavar="N", help="How many queries to show. Default: 20.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--query", metavar="ID", help="Show this query in full instead; repeatable."),
]
Cache = Annotated[
    str,
    typer.Option(
        "--cache", metavar="DIR", help="Where the index of the corpus is kept. Default: .karat."
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.json, out.md, or all misses as misses:misses.json; repeatable.",
    ),
]

EXAMPLES = """\b
Examples:
  karat triage run.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
  karat triage run.jsonl --gold qrels.txt --corpus corpus.jsonl --query q42
  karat triage run.trec --gold eval.jsonl -m R@5 --worst 5 --line miss=5
  karat triage run.jsonl --gold eval.jsonl --by language -o triage.md -o misses:out/misses.json
"""


def triage(
    runs: Runs,
    gold: options.GoldFile,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    measure: Measure = None,
    worst: Worst = "20",
    query: Ids = None,
    lines: options.Lines = None,
    by: options.By = None,
    cache: Cache = CACHE,
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    output: Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
    field: options.Fields = None,
) -> None:
    """Show the worst queries: gold, the run's top 10 and BM25's top 10 side by side.

    Each miss stands with its failure class and what speaks for it, and each query with the
    command that shows it again. With --corpus there are texts, and BM25 searches them on the
    spot.

    """
    from karat.analysis.triage import triage as triage_run
    from karat.cli.analysis import MISSES, open_evaluation, parse_page_outputs, publish
    from karat.cli.numbers import whole
    from karat.evaluation.thresholds import parse_thresholds

    if len(runs) > 1:
        raise UsageError(
            f"triage looks into one run, not {len(runs)}; give one of them, or see what sets "
            "two apart with karat compare"
        )
    files = [*runs, gold, queries, corpus]
    outputs = parse_page_outputs(output, files, as_json=as_json, more_forms=(MISSES,))
    if not cache:
        raise UsageError("--cache is empty; name a folder, such as .karat")
    thresholds = parse_thresholds(lines or [], profile)
    count = whole("--worst", worst)
    evaluation = open_evaluation(
        runs,
        gold,
        queries=queries,
        corpus=corpus,
        measures=None if measure is None else [measure],
        profile=profile,
        settings=settings,
        by=by,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        field=field,
        index_cache=Path(cache),
        quiet=quiet,
    )
    typed = {
        "--gold": gold,
        "--queries": queries,
        "--corpus": corpus,
        "--cache": None if cache == CACHE else cache,
        "--profile": None if profile == "karat" else profile,
        "--run-format": run_format,
        "--gold-format": gold_format,
        "-m": [] if measure is None else [measure],
        "--set": settings,
        "--line": lines,
        "--field": evaluation.fields.texts(),
    }
    result = triage_run(
        evaluation,
        runs[0],
        measure=measure,
        worst=count,
        query_ids=query or [],
        thresholds=thresholds,
        commands=partial(_commands, _as_typed(runs[0], typed, strict=strict)),
    )
    publish(result, outputs, as_json=as_json, quiet=quiet)


def _as_typed(
    run: str, options: Mapping[str, str | Sequence[str] | None], *, strict: bool
) -> list[str]:
    """Return the command as it was given, without what only says how much is shown where."""
    words = ["karat", "triage", run]
    for name, value in options.items():
        for word in [value] if isinstance(value, str) else value or []:
            words += [name, word]
    return [*words, "--strict"] if strict else words


def _commands(typed: Sequence[str], query_id: str, meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the command that shows a query again, and with a karat.yaml the one that asks it."""
    shown = {"reproduce": shlex.join([*typed, "--query", query_id])}
    if "config" not in meta or not meta.get("system") or not Path(CONFIG).is_file():
        return shown
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in query_id)
    again = ["karat", "search", CONFIG, "--system", str(meta["system"])]
    again += ["--filter", f"query_id={query_id}", "-o", f"{safe}.jsonl"]
    return {**shown, "ask_again": shlex.join(again)}
