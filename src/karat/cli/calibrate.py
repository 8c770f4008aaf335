"""``karat calibrate``: how far a judge can be trusted, and what its precision really is."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Judged = Annotated[
    str,
    typer.Argument(metavar="JUDGED", help="The judge's labels; - reads standard input."),
]
Human = Annotated[
    list[str],
    typer.Option(
        "--human", metavar="FILE", help="People's judgments of some of the same pairs; repeatable."
    ),
]
OneGradeOf = Annotated[
    str,
    typer.Option(
        "--truth",
        metavar="NAME",
        help="One grade of several people's: majority or dawid-skene. Default: majority.",
    ),
]
Rater = Annotated[
    str | None,
    typer.Option(
        "--rater", metavar="NAME", help="Whose labels in JUDGED to hold against people's."
    ),
]
Rel = Annotated[
    str | None,
    typer.Option("--rel", metavar="GRADE", help="The lowest relevant grade. Default: 1."),
]
TheRun = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="Correct the precision of this run's top k."),
]
Cut = Annotated[
    str | None,
    typer.Option("-k", metavar="K", help="How many of the run's top items count. Default: 5."),
]
Gold = Annotated[
    str | None,
    typer.Option(
        "--gold", metavar="FILE", help="What is known of the run's items; the judge has the rest."
    ),
]
HowSure = Annotated[
    str,
    typer.Option(
        "--interval",
        metavar="NAME",
        help="cluster (whole queries), beta, or ppi: prediction-powered, only where people judged"
        " a uniform sample of what is corrected. Default: cluster.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change rel, ci, boot, unit, seed, order or ties; repeatable.",
    ),
]
HumanFormat = Annotated[
    str | None,
    typer.Option("--human-format", metavar="FORMAT", help="How people's judgments are laid out."),
]

EXAMPLES = """\b
Examples:
  karat calibrate judged.jsonl --human people.jsonl
  karat calibrate judged.jsonl --human people.jsonl --run dense.jsonl -k 5 --gold qrels.txt
  karat calibrate judged.jsonl --human people.jsonl --queries queries.jsonl --by language
  karat calibrate judged.jsonl --human qrels.txt --rel 2 --interval beta -o calibration.md
  karat calibrate judged.jsonl --human ana.jsonl --human ben.jsonl --truth dawid-skene
  karat calibrate judged.jsonl --human sample.jsonl --interval ppi
"""


def calibrate(
    judged: Judged,
    human: Human,
    rater: Rater = None,
    truth: OneGradeOf = "majority",
    rel: Rel = None,
    run: TheRun = None,
    k: Cut = None,
    gold: Gold = None,
    queries: options.QueriesFile = None,
    by: options.By = None,
    interval: HowSure = "cluster",
    profile: options.Profile = "karat",
    settings: Settings = None,
    output: options.PageOutputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    human_format: HumanFormat = None,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
) -> None:
    """Hold a judge's labels against people's, and correct its precision for its errors.

    Sensitivity, specificity and kappa on the pairs that both judged, and how far several people
    agree; then the share that the judge calls relevant, of all its labels or of a run's top k,
    corrected after Rogan and Gladen. The correction is for P@k only.

    Exits with 3 when there is no corrected number: the judge is no better than chance, or people
    called nothing relevant, or everything.

    """
    from karat.cli.calibrating import Request, calibrate_files, leave
    from karat.cli.pooling import publish

    request = Request(
        judged=judged,
        human=human,
        rater=rater,
        truth=truth,
        rel=rel,
        run=run,
        k=k,
        gold=gold,
        queries=queries,
        by=by or [],
        interval=interval,
        profile=profile,
        settings=settings or [],
        seed=seed,
        strict=strict,
        human_format=human_format,
        run_format=run_format,
        gold_format=gold_format,
        outputs=output or [],
        as_json=as_json,
    )
    sheet, outputs = calibrate_files(request)
    publish(sheet, outputs, as_json=as_json, quiet=quiet)
    leave(sheet)
