"""``karat check``: is the eval set sound, and what can it detect?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from karat.cli import options
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.analysis.check import CheckResult
    from karat.evaluation.gates import Gate

CONFIG = "karat.yaml"

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
    from karat.pages.result import to_json
    from karat.pages.terminal import show_page, standard_console
    from karat.report.outputs import write_stdout

    result = _check_files(
        config,
        gold=gold,
        queries=queries,
        corpus=corpus,
        gates=gates,
        by=by or [],
        runs=runs or [],
        measures=measures,
        profile=profile,
        settings=settings or [],
        spread=spread,
        field=field or [],
        strict=strict,
        quiet=quiet,
    )
    if as_json:
        write_stdout(to_json(result))
    elif not quiet:
        show_page(result.page(), standard_console())
    if result.body["verdict"] == "unsound":
        raise typer.Exit(1)


def _check_files(
    config_file: str | None,
    *,
    gold: str | None,
    queries: str | None,
    corpus: str | None,
    gates: str | None,
    by: Sequence[str],
    runs: Sequence[str],
    measures: Sequence[str] | None,
    profile: str | None,
    settings: Sequence[str],
    spread: str | None,
    field: Sequence[str],
    strict: bool,
    quiet: bool,
) -> CheckResult:
    """Read what options and karat.yaml name, and check it.

    Misspelled options are refused before any file is read.
    """
    from karat.analysis.check import check_set
    from karat.cli.options import parse_settings
    from karat.cli.progress import progress
    from karat.cli.streams import heed_interrupts
    from karat.evaluation.gate_files import read_gate_file
    from karat.evaluation.inputs import gold_of, queries_of
    from karat.formats import read_corpus, scan_run
    from karat.formats.field_mapping import Fields
    from karat.measures.conventions import PROFILES, conventions_of
    from karat.measures.names import parse_measures
    from karat.measures.prepare import prepare
    from karat.measures.score_builder import score
    from karat.project.config import Config, read_config

    heed_interrupts()
    config = Config()
    if config_file is not None or (gold is None and Path(CONFIG).is_file()):
        config = read_config(config_file or CONFIG)
    profile = profile or config.profile
    conventions = conventions_of(profile, config.settings | parse_settings(settings))
    named = measures or config.measures
    chosen = parse_measures(named or PROFILES[profile].measures, conventions=conventions)
    if len(runs) not in (0, 2):
        raise UsageError("--run is given twice, for two runs whose difference tells the spread")
    if runs and spread is not None:
        raise UsageError("--spread is assumed where there are no runs; give --run or --spread")
    queries = queries or (config.queries and config.path(config.queries))
    gold = gold or (config.gold and config.path(config.gold))
    in_queries = gold is None
    if gold is None:
        if queries is None:
            raise UsageError("nothing to check: name a karat.yaml, or give --gold FILE")
        gold, queries = queries, None
    corpus = corpus or (config.corpus and config.path(config.corpus))
    assumed = None if spread is None else _number(spread)
    fields = config.mapping.updated(Fields.parse(field))
    files = [name for name in (gold, queries, corpus, *runs) if name is not None]
    if [*files, gates].count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    limits: Sequence[Gate] = config.gates
    limits_source = None
    if gates is not None:
        file = read_gate_file(gates, conventions=conventions)
        limits, limits_source = file.gates, file.source
    with progress(files, quiet=quiet) as begin:
        begin(gold)
        judged = gold_of(
            gold, in_queries=in_queries, duplicates=conventions.duplicates, fields=fields
        )
        asked = queries_of(queries, gold, gold_format=None, fields=fields)
        items = None if corpus is None else read_corpus(corpus, fields=fields)
        scores = []
        if runs:
            prepared = prepare(judged, conventions, queries=asked, corpus=items)
            lenient = () if named else chosen
            scores = [
                score(scan_run(name, fields=fields), prepared, chosen, lenient=lenient)
                for name in runs
            ]
        fields.check()
        found = check_set(
            judged,
            queries=asked,
            corpus=items,
            gates=limits,
            by=by or config.by,
            measures=chosen,
            conventions=conventions,
            scores=scores,
            spread=assumed,
        )
    inputs = {
        "gold": judged.source,
        "queries": asked and asked.source,
        "corpus": items and items.source,
        "gates": limits_source,
        "runs": [run.source for run in scores],
        **({"fields": dict(fields.given)} if fields.given else {}),
        **({"config_digest": config.digest} if config.digest else {}),
    }
    return found.result(inputs, strict=strict)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--spread is {text!r}; it is a number above 0, such as 0.35") from None
