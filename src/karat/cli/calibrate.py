"""``karat calibrate``: how far a judge can be trusted, and its precision without its errors."""

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
        help="How several people make one grade: majority or dawid-skene. Default: majority.",
    ),
]
Rater = Annotated[
    str | None,
    typer.Option(
        "--rater", metavar="NAME", help="Whose labels in JUDGED to compare with people's."
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
        "--gold",
        metavar="FILE",
        help="Gold of the run's items; the judge's labels count for the rest.",
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
    typer.Option("--human-format", metavar="FORMAT", help="The format of people's judgments."),
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
    """Compare a judge's labels with people's, and correct its precision for its errors.

    Reports sensitivity, specificity and kappa on the pairs that both judged, and how far several
    people agree. Then it corrects the share that the judge calls relevant, of all its labels or of
    a run's top k, after Rogan and Gladen. The correction is for P@k only.

    Exits with 3 when there is no corrected number: the judge is no better than chance, or people
    called nothing relevant, or everything.

    """
    import karat
    from karat.cli.label_commands import (
        exit_cannot_tell,
        input_names,
        publish_result,
        settings_of,
    )
    from karat.cli.numbers import whole
    from karat.cli.streams import heed_interrupts
    from karat.errors import UsageError
    from karat.report.outputs import PAGE_FORMS, parse_outputs

    heed_interrupts()
    inputs = input_names(judged, human, run, gold, queries)
    outputs = parse_outputs(output or [], inputs=inputs, stdout_taken=as_json, forms=PAGE_FORMS)
    of_run = {
        "-k": k,
        "--gold": gold,
        "--run-format": run_format,
        "--gold-format": gold_format,
        "--strict": strict,
    }
    for option, value in of_run.items():
        if run is None and value:
            raise UsageError(f"{option} is for the top of a run; name one with --run")
    if interval == "ppi" and seed is not None:
        raise UsageError("--seed: --interval ppi draws nothing; leave it out")
    rel_setting = [] if rel is None else [f"rel={rel}"]
    result = karat.calibrate(
        judged,
        human,
        rater=rater,
        truth=truth,
        run=run,
        k=whole("-k", k or "5"),
        gold=gold,
        queries=queries,
        by=by or [],
        interval=interval,
        profile=profile,
        settings=settings_of([*(settings or []), *rel_setting], seed),
        human_format=human_format,
        run_format=run_format,
        gold_format=gold_format,
        strict=strict,
    )
    publish_result(result, outputs, as_json=as_json, quiet=quiet)
    if result.unmeasured is not None:
        exit_cannot_tell(result.unmeasured)
