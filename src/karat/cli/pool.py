"""``karat pool``: what several runs return and nobody has judged yet."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs to pool; - reads standard input."),
]
Gold = Annotated[
    list[str] | None,
    typer.Option(
        "--gold",
        metavar="FILE",
        help="Gold or labels that exist already; repeatable. The pool leaves these pairs out.",
    ),
]
Depth = Annotated[
    str,
    typer.Option("--depth", metavar="N", help="How far down each list is pooled. Default: 10."),
]
Sample = Annotated[
    str | None,
    typer.Option(
        "--sample", metavar="N", help="Draw this many pairs of the pool, all equally likely."
    ),
]
IncludeJudged = Annotated[
    bool, typer.Option("--include-judged", help="Keep pairs that the gold judges.")
]
WithoutTexts = Annotated[
    bool,
    typer.Option("--without-texts", help="Keep pairs without a text, with their ids alone."),
]
Bias = Annotated[
    bool,
    typer.Option(
        "--bias",
        help="Also report whether the gold is fair to every run: leave-one-run-out, RBP residuals,"
        " condensed lists.",
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="A measure for --bias; repeatable. Default: nDCG@10, AP, RBP.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change order, ties or seed; with --bias also missing, empty_gold, rel or k;"
        " repeatable.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write the pool to pool.jsonl, or the report on it to out.json or out.md; repeatable.",
    ),
]
Seed = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="The seed of the shuffling. Default: 0."),
]

EXAMPLES = """\b
Examples:
  karat pool bm25.trec dense.jsonl --gold qrels.txt --depth 10
  karat pool bm25.trec dense.jsonl --gold qrels.txt --queries queries.jsonl \\
    --corpus corpus.jsonl --depth 10 -o pool.jsonl
  karat pool bm25.trec dense.jsonl --queries queries.jsonl --corpus corpus.jsonl \\
    --sample 200 --include-judged -o for-people.jsonl
  karat pool bm25.trec dense.jsonl fused.trec --gold qrels.txt --depth 10 --bias -m nDCG@10
"""


def pool(
    runs: Runs,
    gold: Gold = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    depth: Depth = "10",
    sample: Sample = None,
    include_judged: IncludeJudged = False,
    without_texts: WithoutTexts = False,
    bias: Bias = False,
    measures: Measures = None,
    profile: options.Profile = "karat",
    settings: Settings = None,
    output: Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
) -> None:
    """Pool the top of several runs for judging, without what is judged already.

    Writes one pair of a query and an item per line, with texts, in an order that reveals neither
    system nor rank. Without -o it shows how much of each run's top is judged and how large the
    pool would be.

    """
    import karat
    from karat.cli.label_commands import (
        PAIR_FORMS,
        PAIRS,
        input_names,
        publish_result,
        settings_of,
    )
    from karat.cli.numbers import whole
    from karat.cli.streams import heed_interrupts
    from karat.report.outputs import parse_outputs

    heed_interrupts()
    inputs = input_names(runs, gold, queries, corpus)
    outputs = parse_outputs(output or [], inputs=inputs, stdout_taken=as_json, forms=PAIR_FORMS)
    pooled = karat.pool(
        runs,
        depth=whole("--depth", depth),
        gold=gold or [],
        queries=queries,
        corpus=corpus,
        sample=None if sample is None else whole("--sample", sample),
        include_judged=include_judged,
        bias=bias,
        measures=measures,
        profile=profile,
        settings=settings_of(settings, seed),
        run_format=run_format,
        gold_format=gold_format,
        strict=strict,
    )
    if not without_texts and any(one.form is PAIRS for one in outputs):
        pooled.check_texts()
    publish_result(pooled, outputs, as_json=as_json, quiet=quiet)
