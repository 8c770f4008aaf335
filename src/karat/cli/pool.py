"""``karat pool``: what several runs return and nobody judged yet."""

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
        help="What is judged already: gold or labels; repeatable. It stays out of the pool.",
    ),
]
Depth = Annotated[
    str,
    typer.Option("--depth", metavar="N", help="How far down each list is pooled. Default: 10."),
]
Sample = Annotated[
    str | None,
    typer.Option(
        "--sample", metavar="N", help="Draw so many pairs of the pool, each as likely as another."
    ),
]
IncludeJudged = Annotated[
    bool, typer.Option("--include-judged", help="Leave in what the gold judges.")
]
WithoutTexts = Annotated[
    bool,
    typer.Option("--without-texts", help="Take pairs without a text too, by their ids alone."),
]
Bias = Annotated[
    bool,
    typer.Option(
        "--bias",
        help="Also say whether the gold is fair to every run: leave-one-run-out, RBP residuals,"
        " condensed lists.",
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What the gold is to be fair by, with --bias; repeatable. Default: nDCG@10, AP, RBP.",
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
        help="Write the pool to pool.jsonl, or what is said of it to out.json or out.md;"
        " repeatable.",
    ),
]
Seed = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="What shuffling starts from. Default: 0."),
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
    """Pool the top of several runs for judging, less what is judged already.

    One pair of a query and an item a line, with texts, in an order that tells neither system
    nor rank. Without -o it says how much of each run's top is judged and what a pool would hold.

    """
    from karat.cli.pooling import Request, pool_files, publish

    request = Request(
        runs=runs,
        gold=gold or [],
        queries=queries,
        corpus=corpus,
        depth=depth,
        sample=sample,
        include_judged=include_judged,
        without_texts=without_texts,
        profile=profile,
        settings=settings or [],
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        outputs=output or [],
        as_json=as_json,
        bias=bias,
        measures=measures,
    )
    publish(*pool_files(request), as_json=as_json, quiet=quiet)
