"""From file names to a report: read the inputs, score each run, gather the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from karat.analysis.segments import check_column
from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import progress
from karat.errors import UsageError
from karat.formats import queries_beside, read_corpus, read_gold, read_queries, scan_run
from karat.measures.conventions import PROFILES, conventions_of, setting_names
from karat.measures.names import parse_measures
from karat.measures.scores import prepare
from karat.measures.scores import score as score_run
from karat.reports.document import Report, build_report
from karat.tables import Queries


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat eval`` was asked for."""

    runs: Sequence[str]
    gold: str
    measures: Sequence[str] | None = None
    profile: str = "karat"
    settings: Sequence[str] = ()
    by: Sequence[str] = ()
    queries: str | None = None
    corpus: str | None = None
    strict: bool = False
    run_format: str | None = None
    gold_format: str | None = None
    quiet: bool = False

    def files(self) -> list[str]:
        """Every input by name."""
        named = [*self.runs, self.gold, self.queries, self.corpus]
        return [name for name in named if name is not None]


def score(request: Request) -> Report:
    """Score every run of the request; what is misspelled is refused before anything is read."""
    heed_interrupts()
    settings = parse_settings(request.settings)
    conventions = conventions_of(request.profile, settings)
    named = request.measures or PROFILES[request.profile].measures
    measures = parse_measures(named, rel=conventions.rel)
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    gold = read_gold(request.gold, format=request.gold_format, duplicates=conventions.duplicates)
    queries = _queries(request)
    for column in request.by:
        check_column(queries, column)
    corpus = None if request.corpus is None else read_corpus(request.corpus)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    scores = []
    with progress(request.runs, quiet=request.quiet) as begin:
        for name in request.runs:
            begin(name)
            run = scan_run(name, format=request.run_format, strict=request.strict)
            scores.append(score_run(run, prepared, measures, lenient=not request.measures))
    return build_report(scores, gold=gold, queries=queries, corpus=corpus, by=request.by)


def _queries(request: Request) -> Queries | None:
    """The queries file, else the queries that came with the gold."""
    if request.queries is not None:
        return read_queries(request.queries)
    # A pipe can be read once only, and the gold has been read from it.
    again = Path(request.gold).is_file() or Path(request.gold).is_dir()
    return queries_beside(request.gold, format=request.gold_format) if again else None


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` pairs; the same key twice is a contradiction.

    >>> parse_settings(["ties=given", "rel=2"])
    {'ties': 'given', 'rel': '2'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not value.strip():
            known = ", ".join(setting_names())
            raise UsageError(f"--set takes KEY=VALUE, not {text!r}; known: {known}")
        if settings.setdefault(key, value.strip()) != value.strip():
            raise UsageError(f"--set {key} is given twice with different values")
    return settings
