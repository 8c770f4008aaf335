"""``karat stress``: how robust a reranker or a list is against hard negatives and damage."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN_OR_CONFIG",
        help="A karat.yaml, whose systems rerank again, or a run. Default: this folder's"
        " karat.yaml.",
    ),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="Only this system of it; repeatable."),
]
Gold = Annotated[
    str | None, typer.Option("--gold", metavar="FILE", help="The judgments, for a run.")
]
Insert = Annotated[
    str | None,
    typer.Option("--insert", metavar="N", help="Put N hard negatives in. Default: 3."),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="RANKS", help="Where, as in 1,2,3. Default: on top."),
]
Negatives = Annotated[
    str | None,
    typer.Option(
        "--negatives",
        metavar="own|bm25",
        help="The eval set's own, or the best by BM25 that are not gold. Default: own if any.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", metavar="N|gold", help="Take the first N out, or the best gold; repeatable."
    ),
]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Put the list in random order.")]
Truncate = Annotated[
    list[str] | None,
    typer.Option("--truncate", metavar="N", help="Leave only the first N; repeatable."),
]
Sample = Annotated[
    str | None,
    typer.Option(
        "--sample",
        metavar="N|all",
        help="How many queries to draw by the seed. Default: 100 for a karat.yaml, all for a run.",
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What may drop; the first decides; repeatable. Default: nDCG@5, R@5, RR@10.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The reading of measures and gaps. Default: the karat.yaml's, else karat.",
    ),
]

EXAMPLES = """\b
Examples:
  karat stress karat.yaml --system hybrid
  karat stress --insert 3 --at 1,2,3 --drop gold --shuffle --truncate 20
  karat stress --negatives bm25 --sample 200 --by language -o stress.json -o stress.md
  karat stress run.jsonl --gold eval.jsonl --insert 2 --at 1,3
"""


def stress(
    subject: Subject = None,
    system: Systems = None,
    gold: Gold = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    insert: Insert = None,
    at: At = None,
    negatives: Negatives = None,
    drop: Drop = None,
    shuffle: Shuffle = False,
    truncate: Truncate = None,
    sample: Sample = None,
    measures: Measures = None,
    profile: Profile = None,
    settings: options.Settings = None,
    by: options.By = None,
    output: options.PageOutputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
) -> None:
    """Damage the lists that a reranker is given, let it run again, and measure the drop.

    Each kind of damage is a scenario of its own; without any, three hard negatives are put on
    top. Of a karat.yaml's systems the retrieved list is damaged and all later stages run again.
    A run cannot be reranked: there the list itself is damaged, and the output says so.

    Exits with 3 when not one query could be measured before and after.

    """
    from karat.cli.analysing import publish_paper
    from karat.cli.stress_inputs import Request
    from karat.cli.stressing import end, stress_all
    from karat.reports.outputs import PAGE_FORMS, parse_outputs

    request = Request(
        subject=subject,
        systems=system or [],
        gold=gold,
        queries=queries,
        corpus=corpus,
        insert=insert,
        at=at,
        negatives=negatives,
        drop=drop or [],
        shuffle=shuffle,
        truncate=truncate or [],
        sample=sample,
        measures=measures,
        profile=profile,
        settings=settings or [],
        by=by or [],
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        quiet=quiet or as_json,
    )
    outputs = parse_outputs(
        output or [], inputs=request.files(), stdout_taken=as_json, forms=PAGE_FORMS
    )
    paper = stress_all(request)
    publish_paper(paper, outputs, as_json=as_json, quiet=quiet)
    end(paper)
