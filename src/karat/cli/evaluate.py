"""``karat eval``: score one or many runs against gold."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options, saving

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs to score; - reads standard input."),
]

EXAMPLES = """\b
Examples:
  karat eval bm25.trec --gold qrels.txt
  karat eval bm25.trec dense.jsonl --gold qrels.txt -m nDCG@10,R@100 -o report.json
  karat eval run.trec --gold qrels.txt --profile trec -o trec:-
  karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --by language
  karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --gates gates.yaml
"""


def evaluate(
    runs: Runs,
    gold: options.GoldFile,
    measures: options.Measures = None,
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    by: options.By = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    gates: options.GatesFile = None,
    judged: options.JudgedFile = None,
    output: options.Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    save: saving.Save = False,
    tag: saving.Tags = None,
    store: saving.StoreUrl = None,
    timestamp: options.Timestamp = None,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
) -> None:
    """Score one or many runs against gold.

    Exits with 1 when a gate fails, with 3 when one cannot be judged or not one query could be
    scored.

    """
    from dataclasses import replace

    from karat.cli.publish import publish
    from karat.cli.scoring import Request, score
    from karat.cli.stamps import stamp
    from karat.reports.outputs import (
        asks_for_all,
        forms_in,
        parse_outputs,
        refuse_collisions,
        stems_of,
    )

    request = Request(
        runs=runs,
        gold=gold,
        measures=measures,
        profile=profile,
        settings=settings or [],
        by=by or [],
        queries=queries,
        corpus=corpus,
        gates=gates,
        judged=judged,
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        quiet=quiet,
    )
    outputs = parse_outputs(
        output or [],
        inputs=request.files(),
        stdout_taken=as_json,
        systems=len(runs),
        names=stems_of(runs),
        profile=profile,
    )
    time = stamp(timestamp, outputs)
    saving.check_saving(save=save, store=store, tags=tag)
    request = replace(request, forms=forms_in(outputs))
    scored = score(request, in_full=asks_for_all(outputs, as_json))
    report = replace(scored.gated(scored.report()), timestamp=time)
    refuse_collisions(outputs, report)
    if save:
        saving.save_report(report, store=store, tags=tag)
    publish(report, outputs, as_json=as_json, quiet=quiet)
