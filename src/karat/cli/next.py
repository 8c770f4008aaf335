"""``karat next``: which judgments would settle a comparison, or tighten a measure, most."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="One run, or two: the baseline and the other system."),
]
Gold = Annotated[
    list[str] | None,
    typer.Option(
        "--gold",
        metavar="FILE",
        help="What is judged already: gold and labels; repeatable. Of a pair the first counts.",
    ),
]
Measure = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--measure",
        "--primary",
        metavar="MEASURE",
        help="The measure that decides. Default: the profile's first.",
    ),
]
Margin = Annotated[
    str | None,
    typer.Option(
        "--margin",
        metavar="SHARE",
        help="Of two runs: a change that does not matter. Default: 0.02, 2 % of the mean.",
    ),
]
MarginKind = Annotated[
    str | None,
    typer.Option(
        "--margin-kind", metavar="KIND", help="relative (to the baseline, default) or absolute."
    ),
]
Within = Annotated[
    str | None,
    typer.Option(
        "--within",
        metavar="X",
        help="Of one run: stop when labels can move the measure no further than this. Default: 0.",
    ),
]
Count = Annotated[
    str, typer.Option("--count", metavar="N", help="How many pairs to judge. Default: 20.")
]
Depth = Annotated[
    str | None,
    typer.Option("--depth", metavar="N", help="Judge only what stands among the first N."),
]
WithoutTexts = Annotated[
    bool,
    typer.Option("--without-texts", help="Take pairs without a text too, by their ids alone."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write the pairs to next.jsonl, or what is said of them to out.json or out.md;"
        " repeatable.",
    ),
]

EXAMPLES = """\b
Examples:
  karat next base.trec new.trec --gold qrels.txt
  karat next base.trec new.trec --gold qrels.txt --gold labels.jsonl -m nDCG@10 \\
    --queries queries.jsonl --corpus corpus.jsonl --count 50 -o next.jsonl
  karat next new.trec --gold qrels.txt -m P@5 --within 0.02
"""


def next_(
    runs: Runs,
    gold: Gold = None,
    measure: Measure = None,
    margin: Margin = None,
    margin_kind: MarginKind = None,
    within: Within = None,
    count: Count = "20",
    depth: Depth = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    without_texts: WithoutTexts = False,
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    output: Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
) -> None:
    """Choose the judgments that would settle a comparison, or tighten a measure, most.

    Of two runs it says whether the verdict can still change, and which unjudged pairs are most
    likely to change it; of one, which pairs hold its measure open. Says stop when no label can
    change the verdict. The pairs go to karat judge or to people, and their labels come back
    as one more --gold.

    Exits with 3 when a run did not answer: not one query, or too few by its own log.

    """
    from karat.cli.nexting import Request, leave, next_of_files
    from karat.cli.pooling import publish

    request = Request(
        runs=runs,
        gold=gold or [],
        measure=measure,
        margin=margin,
        margin_kind=margin_kind,
        within=within,
        count=count,
        depth=depth,
        queries=queries,
        corpus=corpus,
        without_texts=without_texts,
        profile=profile,
        settings=settings or [],
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        outputs=output or [],
        as_json=as_json,
    )
    found, outputs = next_of_files(request)
    publish(found, outputs, as_json=as_json, quiet=quiet)
    leave(found.sheet)
