"""``karat check``: is the eval set sound, and what can it detect?"""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

ConfigFile = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG", help="A karat.yaml. Default: the one here, unless --gold is given."
    ),
]
GoldFile = Annotated[
    str | None,
    typer.Option("--gold", metavar="FILE", help="The judgments: qrels or any format read."),
]
QueriesFile = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="Queries with texts and attributes."),
]
CorpusFile = Annotated[
    str | None, typer.Option("--corpus", metavar="FILE", help="Items with texts and versions.")
]
GatesFile = Annotated[
    str | None,
    typer.Option("--gates", metavar="FILE", help="Limits to hold against what can be reached."),
]
By = Annotated[
    list[str] | None,
    typer.Option("--by", metavar="COLUMN", help="Also look for small segments; repeatable."),
]
Runs = Annotated[
    list[str] | None,
    typer.Option("--run", metavar="RUN", help="Two runs, whose difference tells the spread."),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What will be measured; the first tells the spread. Default: the profile's.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The reading of measures and gaps."),
]
Spread = Annotated[
    str | None,
    typer.Option(
        "--spread",
        metavar="SD",
        help="The spread of differences to assume where there are no runs. Default: 0.35.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing; the exit code tells.")]

EXAMPLES = """\b
Examples:
  karat check --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
  karat check karat.yaml --strict
  karat check --gold eval.jsonl --field gold=gold_ids
  karat check --gold qrels.txt --run bm25.trec --run dense.jsonl -m nDCG@10
"""


def check(
    config: ConfigFile = None,
    gold: GoldFile = None,
    queries: QueriesFile = None,
    corpus: CorpusFile = None,
    gates: GatesFile = None,
    by: By = None,
    runs: Runs = None,
    measures: Measures = None,
    profile: Profile = None,
    settings: options.Settings = None,
    spread: Spread = None,
    field: options.Fields = None,
    strict: Strict = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check whether an eval set is sound.

    Looks for contradictions, duplicates, leaks, ids that lead nowhere and targets out of
    reach, and says what difference the set can detect. Exits with 1 when something is wrong.

    """
    from karat.cli.checking import Request
    from karat.cli.checking import check as check_files
    from karat.formats.field_mapping import Fields
    from karat.reports.outputs import write_stdout
    from karat.reports.soundness import check_to_json, show_check
    from karat.reports.terminal import standard_console

    report = check_files(
        Request(
            config=config,
            gold=gold,
            queries=queries,
            corpus=corpus,
            gates=gates,
            by=by or [],
            runs=runs or [],
            measures=measures or None,
            profile=profile,
            settings=settings or [],
            spread=spread,
            fields=Fields.parse(field or []),
            strict=strict,
            quiet=quiet,
        )
    )
    if as_json:
        write_stdout(check_to_json(report))
    elif not quiet:
        show_check(report, standard_console())
    if report.verdict == "unsound":
        raise typer.Exit(1)
