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
        help="Gold and labels so far; repeatable. The first judgment of a pair counts.",
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
        help="For two runs: a change that does not matter. Default: 0.02, 2 % of the mean.",
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
        help="For one run: stop when labels can move the measure no further than this. Default: 0.",
    ),
]
Count = Annotated[
    str, typer.Option("--count", metavar="N", help="How many pairs to judge. Default: 20.")
]
Depth = Annotated[
    str | None,
    typer.Option("--depth", metavar="N", help="Choose only among the first N of each list."),
]
WithoutTexts = Annotated[
    bool,
    typer.Option("--without-texts", help="Keep pairs without a text, with their ids alone."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write the pairs to next.jsonl, or the report on them to out.json or out.md;"
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

    For two runs it says whether the verdict can still change, and which unjudged pairs are most
    likely to change it; for one, which pairs keep its measure uncertain. It says stop when no
    label can change the verdict. Give the pairs to karat judge or to people, and add their
    labels as one more --gold.

    Exits with 3 when a run did not answer: not one query, or too few by its own log.

    """
    import karat
    from karat.cli.label_commands import (
        PAIR_FORMS,
        PAIRS,
        exit_cannot_tell,
        input_names,
        publish_result,
        settings_of,
    )
    from karat.cli.numbers import decimal, whole
    from karat.cli.streams import heed_interrupts
    from karat.report.outputs import parse_outputs

    heed_interrupts()
    inputs = input_names(runs, gold, queries, corpus)
    outputs = parse_outputs(output or [], inputs=inputs, stdout_taken=as_json, forms=PAIR_FORMS)
    result = karat.next_judgments(
        runs,
        gold=gold or [],
        measure=measure,
        margin=decimal("--margin", margin, least=0),
        margin_kind=margin_kind,
        within=decimal("--within", within, least=0),
        count=whole("--count", count),
        depth=None if depth is None else whole("--depth", depth),
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=settings_of(settings, seed),
        run_format=run_format,
        gold_format=gold_format,
        strict=strict,
    )
    if not without_texts and any(one.form is PAIRS for one in outputs):
        result.check_texts()
    publish_result(result, outputs, as_json=as_json, quiet=quiet)
    if result.unmeasured is not None:
        exit_cannot_tell(result.unmeasured)
