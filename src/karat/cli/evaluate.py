"""``karat eval``: score one or many runs against gold."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options, saving
from karat.own_folder import OWN_FOLDER

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
  karat eval run.jsonl --gold eval.jsonl --field gold=gold_ids
  karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --gates gates.yaml
  karat eval "s3a://runs/2026-11/*.parquet" --gold qrels.parquet --engine spark
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
    human: options.HumanFiles = None,
    bounds: options.Bounds = None,
    strict_bounds: options.StrictBounds = False,
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
    field: options.Fields = None,
    engine: options.Engine = "local",
) -> None:
    """Score one or many runs against gold.

    Exits with 1 when a gate fails, with 3 when one cannot be judged or not one query could be
    scored.

    """
    from dataclasses import replace
    from pathlib import Path

    from karat.cli.publish import publish
    from karat.cli.scoring import Request, score
    from karat.cli.stamps import stamp
    from karat.formats.field_mapping import Fields
    from karat.reports.outputs import (
        asks_for_all,
        asks_for_items,
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
        human=human or [],
        bounds=bounds,
        strict_bounds=strict_bounds,
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        fields=Fields.parse(field or []),
        engine=engine,
        quiet=quiet,
    )
    outputs = parse_outputs(
        output or [],
        inputs=[*request.files(), *saving.store_files(store, used=save)],
        stdout_taken=as_json,
        systems=len(runs),
        names=stems_of(runs),
        profile=profile,
    )
    time = stamp(timestamp, outputs)
    saving.check_saving(save=save, store=store, tags=tag)
    index_in = Path(OWN_FOLDER) if save or asks_for_items(outputs) else None
    request = replace(request, forms=forms_in(outputs), index_in=index_in)
    scored = score(request, in_full=save or asks_for_all(outputs, as_json))
    report = replace(scored.gated(scored.report()), timestamp=time)
    refuse_collisions(outputs, report)
    if save:
        saving.save_report(report, store=store, tags=tag)
    publish(report, outputs, as_json=as_json, quiet=quiet)
