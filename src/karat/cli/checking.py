"""From file names to the result of a check: the options and a karat.yaml put together and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from karat.analysis.gate_files import read_gate_file
from karat.analysis.gates import Gate
from karat.analysis.soundness import check_set
from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import progress
from karat.cli.scoring import parse_settings, read_the_gold
from karat.columns import Source
from karat.config import Config, read_config
from karat.errors import UsageError
from karat.formats import queries_beside, read_corpus, read_queries, scan_run
from karat.formats.field_mapping import Fields
from karat.measures.conventions import PROFILES, Conventions, conventions_of
from karat.measures.names import Measure, parse_measures
from karat.measures.scores import Scores, prepare, score
from karat.reports.soundness import CheckReport
from karat.tables import Corpus, Gold, Queries

CONFIG = "karat.yaml"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat check`` was asked for; what is None is left to the karat.yaml."""

    config: str | None = None
    gold: str | None = None
    queries: str | None = None
    corpus: str | None = None
    gates: str | None = None
    by: Sequence[str] = ()
    runs: Sequence[str] = ()
    measures: Sequence[str] | None = None
    profile: str | None = None
    settings: Sequence[str] = ()
    spread: str | None = None
    fields: Fields = field(default_factory=Fields)
    strict: bool = False
    quiet: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plan:
    """What to read and check, as options and karat.yaml together say."""

    gold: str
    gold_in_queries: bool
    queries: str | None
    corpus: str | None
    runs: Sequence[str]
    gates: Sequence[Gate]
    gates_file: Source | None
    by: Sequence[str]
    measures: Sequence[Measure]
    lenient: Sequence[Measure]
    conventions: Conventions
    spread: float | None
    config_digest: str | None
    fields: Fields

    def files(self) -> list[str]:
        named = [self.gold, self.queries, self.corpus, *self.runs]
        return [name for name in named if name is not None]


def check(request: Request) -> CheckReport:
    """Read everything and check it; what is misspelled is refused before anything is read."""
    heed_interrupts()
    plan = _plan(request)
    with progress(plan.files(), quiet=request.quiet) as begin:
        begin(plan.gold)
        conventions = plan.conventions
        gold = read_the_gold(
            plan.gold,
            in_queries=plan.gold_in_queries,
            duplicates=conventions.duplicates,
            fields=plan.fields,
        )
        queries = _queries(plan)
        corpus = None if plan.corpus is None else read_corpus(plan.corpus, fields=plan.fields)
        scores = _scores(plan, gold, queries, corpus)
        plan.fields.check()
        found = check_set(
            gold,
            queries=queries,
            corpus=corpus,
            gates=plan.gates,
            by=plan.by,
            measures=plan.measures,
            conventions=plan.conventions,
            scores=scores,
            spread=plan.spread,
        )
    return CheckReport(
        found,
        gold=gold.source,
        queries=None if queries is None else queries.source,
        corpus=None if corpus is None else corpus.source,
        gates=plan.gates_file,
        runs=tuple(one.source for one in scores),
        config_digest=plan.config_digest,
        fields=plan.fields.given,
        strict=request.strict,
    )


def _plan(request: Request) -> _Plan:
    config = _config(request)
    settings = config.settings | parse_settings(request.settings)
    profile = request.profile or config.profile
    conventions = conventions_of(profile, settings)
    named = request.measures or config.measures
    measures = parse_measures(named or PROFILES[profile].measures, conventions=conventions)
    if len(request.runs) not in (0, 2):
        raise UsageError("--run is given twice, for two runs whose difference tells the spread")
    if request.runs and request.spread is not None:
        raise UsageError("--spread is assumed where there are no runs; give --run or --spread")
    gold, queries = _gold_and_queries(request, config)
    plan = _Plan(
        gold=gold,
        gold_in_queries=request.gold is None and config.gold is None,
        queries=queries,
        corpus=request.corpus or (config.corpus and config.path(config.corpus)),
        runs=request.runs,
        gates=config.gates if request.gates is None else (),
        gates_file=None,
        by=request.by or config.by,
        measures=measures,
        lenient=() if named else measures,
        conventions=conventions,
        spread=None if request.spread is None else _number(request.spread),
        config_digest=config.digest or None,
        fields=config.mapping.updated(request.fields),
    )
    if [*plan.files(), request.gates].count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    if request.gates is None:
        return plan
    file = read_gate_file(request.gates, conventions=conventions)
    return replace(plan, gates=file.gates, gates_file=file.source)


def _config(request: Request) -> Config:
    """The karat.yaml that was named, or that of this folder if nothing was."""
    if request.config is not None:
        return read_config(request.config)
    if request.gold is None and Path(CONFIG).is_file():
        return read_config(CONFIG)
    return Config()


def _gold_and_queries(request: Request, config: Config) -> tuple[str, str | None]:
    """The gold may be in the queries' file, which then stands for both."""
    queries = request.queries or (config.queries and config.path(config.queries))
    gold = request.gold or (config.gold and config.path(config.gold))
    if gold is not None:
        return gold, queries
    if queries is None:
        raise UsageError("nothing to check: name a karat.yaml, or give --gold FILE")
    return queries, None


def _queries(plan: _Plan) -> Queries | None:
    """The queries file, else the queries that came with the gold."""
    if plan.queries is not None:
        return read_queries(plan.queries, fields=plan.fields)
    # A pipe can be read once only, and the gold has been read from it.
    again = Path(plan.gold).is_file() or Path(plan.gold).is_dir()
    return queries_beside(plan.gold, fields=plan.fields) if again else None


def _scores(
    plan: _Plan, gold: Gold, queries: Queries | None, corpus: Corpus | None
) -> list[Scores]:
    if not plan.runs:
        return []
    prepared = prepare(gold, plan.conventions, queries=queries, corpus=corpus)
    return [
        score(scan_run(name, fields=plan.fields), prepared, plan.measures, lenient=plan.lenient)
        for name in plan.runs
    ]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--spread is {text!r}; it is a number above 0, such as 0.35") from None
