"""``karat compare``: did the change help?"""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options, saving
from karat.own_folder import OWN_FOLDER

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="The run to compare with, then the others."),
]
Primary = Annotated[
    str | None,
    typer.Option(
        "--primary", metavar="MEASURE", help="The measure that decides. Default: the profile's."
    ),
]
Margin = Annotated[
    str,
    typer.Option(
        "--margin", metavar="SHARE", help="A change that does not matter: 0.02 is 2 % of the mean."
    ),
]
MarginKind = Annotated[
    str,
    typer.Option("--margin-kind", metavar="KIND", help="relative (to the baseline) or absolute."),
]
MarginOn = Annotated[
    str,
    typer.Option(
        "--margin-on",
        metavar="WHAT",
        help="What must be beyond the margin: the whole interval, or mean: the change itself.",
    ),
]
Pairs = Annotated[
    str, typer.Option("--pairs", metavar="WHICH", help="Each with the baseline, or all pairs.")
]
Correction = Annotated[
    str,
    typer.Option("--correction", metavar="NAME", help="For several tests: holm or bh."),
]
Detect = Annotated[
    str | None,
    typer.Option("--detect", metavar="X", help="Say how many queries would detect this change."),
]
Replicates = Annotated[
    bool,
    typer.Option(
        "--replicates", help="Runs named alike (x-1, x-2) are repeated runs of one system."
    ),
]
RequireVerdict = Annotated[
    bool, typer.Option("--require-verdict", help="Exit with 3 when the verdict is unclear.")
]

EXAMPLES = """\b
Examples:
  karat compare base.trec new.trec --gold qrels.txt
  karat compare base.trec new.trec --gold qrels.txt -m nDCG@10,R@100 --primary R@100 --margin 0.01
  karat compare a.trec b.trec c.trec --gold qrels.txt --pairs all -o report.md
  karat compare base.jsonl new-1.jsonl new-2.jsonl --gold qrels.txt --replicates
  karat compare base.jsonl new.jsonl --gold qrels.txt --queries queries.jsonl --by language
  karat compare new.jsonl --gold qrels.txt --baseline main
"""


def compare(
    runs: Runs,
    gold: options.GoldFile,
    measures: options.Measures = None,
    primary: Primary = None,
    margin: Margin = "0.02",
    margin_kind: MarginKind = "relative",
    margin_on: MarginOn = "interval",
    pairs: Pairs = "baseline",
    correction: Correction = "holm",
    detect: Detect = None,
    replicates: Replicates = False,
    no_regression: options.NoRegression = None,
    require_verdict: RequireVerdict = False,
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
    baseline: saving.Baseline = None,
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
    """Compare runs with the first one, query by query.

    One measure decides: --primary, else the profile's; what else got worse is a caution. Exits
    with 1 when it is worse or a gate fails (or, with --no-regression all, when any measure got
    worse by more than the margin), with 3 when a gate cannot be judged, or when
    --require-verdict is given and the verdict is unclear.

    """
    from dataclasses import replace
    from pathlib import Path

    from karat.cli.comparing import compare_runs, rule_of
    from karat.cli.publish import publish
    from karat.cli.scoring import Request
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

    rule = rule_of(
        primary, margin, margin_kind, margin_on, pairs, correction, detect, no_regression
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
    kept = saving.store_files(store, used=save or baseline is not None)
    outputs = parse_outputs(
        output or [],
        inputs=[*request.files(), *kept],
        stdout_taken=as_json,
        systems=len(runs) + (baseline is not None),
        names=stems_of(runs),
        profile=profile,
    )
    time = stamp(timestamp, outputs)
    index_in = Path(OWN_FOLDER) if save or asks_for_items(outputs) else None
    request = replace(request, forms=forms_in(outputs), index_in=index_in)
    saving.check_saving(save=save, store=store, tags=tag)
    report = compare_runs(
        request,
        rule,
        replicates=replicates,
        baseline=baseline,
        store=store,
        in_full=save or asks_for_all(outputs, as_json),
    )
    report = replace(report, timestamp=time)
    refuse_collisions(outputs, report)
    if save:
        stored = report.systems[:1] if baseline is not None else ()
        saving.save_report(report, store=store, tags=tag, skip=[one.name for one in stored])
    publish(report, outputs, as_json=as_json, quiet=quiet, require_verdict=require_verdict)
