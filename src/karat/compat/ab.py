"""karat ab: two configs of a retrieval engine on the same queries, scored and compared.

The engine is ``retrieve.quality``; the JSON and CSV are in ``ab_output``.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.compat.ab_output import (
    ABSENT,
    PROFILE,
    AbReport,
    Side,
    digest_of_bytes,
    side_of,
    to_csv,
    to_json,
)
from karat.compat.ab_traces import append_traces, trace_folder, trace_of
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.evaluation.sentences import nothing_found
from karat.formats import read_corpus, read_run
from karat.formats.files import Input, layout_suffix, open_input
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.reports.outputs import Output, parse_outputs, write_files
from karat.retrieve.quality import QualityEngine, Ranked
from karat.retrieve.quality_config import Config, Settings, read_config, read_document
from karat.retrieve.search import OpenBar, no_bar

# Columns of queries as some files name them in a header, which this format has none of.
_HEADER = ["qid", "query_text"]
_TEXT = {"query_id": pl.String, "item_id": pl.String, "text": pl.String, "grade": pl.String}


@dataclass(frozen=True, kw_only=True)
class AbRequest:
    """The inputs of ``karat ab`` by name, and its options.

    Either ``corpus`` is searched under both configs, or ``run_a`` and ``run_b`` are what they
    returned elsewhere.
    """

    queries: str
    truth: str
    config_a: str
    config_b: str
    k: int = 10
    corpus: str | None = None
    run_a: str | None = None
    run_b: str | None = None
    emit_traces: bool = False
    trace_dir: str | None = None

    def __post_init__(self) -> None:
        runs = [run for run in (self.run_a, self.run_b) if run is not None]
        if self.corpus is not None and runs:
            raise UsageError("--corpus and --runA or --runB exclude each other; give one")
        if self.corpus is None and len(runs) < 2:
            raise UsageError("give --corpus to search it, or both --runA and --runB")
        if self.emit_traces and runs:
            raise UsageError("--emit-traces needs --corpus: runs leave nothing to trace")
        if self.trace_dir is not None and not self.emit_traces:
            raise UsageError("--trace-dir says where traces go; add --emit-traces")
        if self.trace_dir == "":
            raise UsageError("--trace-dir is empty; name a folder")
        if self.files().count("-") > 1:
            raise UsageError("only one input can be standard input (-)")

    def files(self) -> list[str]:
        """Return the names of all inputs."""
        named = [self.queries, self.truth, self.config_a, self.config_b]
        return [
            *named,
            *(file for file in (self.corpus, self.run_a, self.run_b) if file is not None),
        ]


@dataclass(frozen=True)
class AbResult:
    """The report, the verdict in words, notes on the inputs, and traces by folder."""

    report: AbReport
    verdict: Sequence[str]
    notes: Sequence[str]
    traces: Mapping[Path, Sequence[Mapping[str, Any]]]


def ab_outputs(
    request: AbRequest, out: str, csv: str | None, *, stdout_taken: bool
) -> list[Output]:
    """Return where JSON and CSV go; names that cannot be written are refused before any work."""
    named = [f"json:{out}", *([] if csv is None else [f"csv:{csv}"])]
    return parse_outputs(named, inputs=request.files(), stdout_taken=stdout_taken)


def write_ab(result: AbResult, outputs: Sequence[Output]) -> list[str]:
    """Write the files and append the traces; return what went wrong with traces."""
    rendered = [to_json(result.report), to_csv(result.report)]
    write_files([(output.path, data) for output, data in zip(outputs, rendered, strict=False)])
    failures = [append_traces(folder, traces) for folder, traces in result.traces.items()]
    return [f"{failure}; the run goes on" for failure in failures if failure is not None]


def ab(request: AbRequest, *, open_bar: OpenBar = no_bar) -> AbResult:
    """Score both configs on the same queries and compare them by nDCG@k."""
    queries, gold = read_queries(request.queries), read_truth(request.truth)
    gold_notes = _notes_on_gold(queries, gold)
    inputs = _Inputs(queries, gold, request.k)
    if request.corpus is None:
        sides = _from_runs(request, inputs)
    else:
        sides = _from_search(request, inputs, open_bar)
    report = AbReport(
        k=request.k,
        corpus_digest=sides.corpus_digest,
        queries_digest=digest_of_bytes(queries.source),
        qrels_digest=digest_of_bytes(gold.source),
        a=sides.sides[0],
        b=sides.sides[1],
    )
    notes = [*sides.notes, *gold_notes]
    return AbResult(report, _verdict(sides.scores), notes, sides.traces)


def _verdict(scores: Sequence[Scores]) -> list[str]:
    """Return whether B is better than A, in the words of every comparison."""
    from karat.evaluation.comparison import compare_scores
    from karat.evaluation.sentences import headlines
    from karat.evaluation.systems import compared_systems
    from karat.evaluation.verdict import Rule

    comparison = compare_scores(compared_systems(scores, names=["A", "B"]), Rule())
    decisions = [decision.to_dict() for decision in comparison.decisions]
    lines = []
    for headline in headlines({"decisions": decisions}):
        first, *others = headline.because
        lines += [f"{headline.word}  {first}", *(f"  {reason}" for reason in others)]
    return lines


@dataclass(frozen=True)
class _Inputs:
    queries: Queries
    gold: Gold
    k: int

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Each query's id and text."""
        return self.queries.frame.select("query_id", "text").rows()

    def score(self, run: Run) -> Scores:
        """Score a run under the harness's conventions, in the order in which it ranks its hits."""
        conventions = conventions_of(PROFILE, {"k": self.k, "order": run.order})
        measures = parse_measures(PROFILES[PROFILE].measures, conventions=conventions)
        prepared = prepare(self.gold, conventions, queries=self.queries)
        return score(run, prepared, measures, keep=self.k)


class _Sides(NamedTuple):
    sides: Sequence[Side]
    scores: Sequence[Scores]
    notes: Sequence[str]
    corpus_digest: str = ABSENT
    traces: Mapping[Path, Sequence[Mapping[str, Any]]] = {}


def _from_runs(request: AbRequest, inputs: _Inputs) -> _Sides:
    """Return both sides from runs; the configs are only recorded."""
    sides, all_scores = [], []
    notes = ["runs are given, so the configs are recorded and have no effect"]
    pairs = ((request.config_a, request.run_a), (request.config_b, request.run_b))
    for name, (config, path) in zip("AB", pairs, strict=True):
        with _naming_config(name):
            document = read_document(config)
        scores = inputs.score(read_run(path or "", name=name))
        notes.extend([*_notes_on_run(scores, name), *_nothing_found(scores, name)])
        all_scores.append(scores)
        sides.append(side_of(scores, document.path, document.digest))
    return _Sides(sides, all_scores, notes)


def _from_search(request: AbRequest, inputs: _Inputs, open_bar: OpenBar) -> _Sides:
    """Return both sides by searching the corpus under each config."""
    configs: dict[str, Config] = {}
    for name, path in zip("AB", (request.config_a, request.config_b), strict=True):
        with _naming_config(name):
            configs[name] = read_config(path)
    corpus_path = request.corpus or ""
    is_jsonl = layout_suffix(corpus_path) == ".jsonl"
    corpus = read_corpus(corpus_path, format="jsonl" if is_jsonl else None)
    notes = [f"config {name}: {note}" for name, config in configs.items() for note in config.notes]
    sides: list[Side] = []
    all_scores: list[Scores] = []
    traces: dict[Path, list[Mapping[str, Any]]] = defaultdict(list)
    for name, config in configs.items():
        with _naming_config(name):
            engine = QualityEngine(corpus, config.settings)
        lists = {}
        with open_bar(name, len(inputs.texts)) as bar:
            for query_id, text in inputs.texts:
                lists[query_id] = engine.rank(text, inputs.k)
                bar.advance(1)
        notes.extend(_notes_on_lists(engine, lists, inputs, name))
        scores = inputs.score(
            Run.from_dict({query_id: ranked.item_ids for query_id, ranked in lists.items()})
        )
        notes.extend(_nothing_found(scores, name))
        all_scores.append(scores)
        sides.append(side_of(scores, config.document.path, config.document.digest))
        if request.emit_traces:
            folder = Path(request.trace_dir or trace_folder(config.settings))
            rows = _traces(config, lists, inputs)
            traces[folder].extend(rows)
            if not rows:
                notes.append(f"config {name}: no traces: {_why_no_traces(config.settings)}")
    notes.extend(_notes_on_corpus(corpus, inputs))
    written = {folder: rows for folder, rows in traces.items() if rows}
    return _Sides(sides, all_scores, notes, digest_of_bytes(corpus.source), written)


@contextmanager
def _naming_config(name: str) -> Iterator[None]:
    """Add to an error which config it is about: both may have the same name, in other folders."""
    try:
        yield
    except InputError as error:
        raise InputError(f"config {name}: {error}") from None


def _traces(
    config: Config, lists: Mapping[str, Ranked], inputs: _Inputs
) -> list[Mapping[str, Any]]:
    traces = (
        trace_of(config.settings, text, lists[query_id], os.environ)
        for query_id, text in inputs.texts
    )
    return [trace for trace in traces if trace is not None]


def _why_no_traces(settings: Settings) -> str:
    if settings.traced and settings.fuses:
        return "no query has a candidate"
    if settings.traced:
        return (
            f"only fused lists are traced, and fusion.mode {settings.fusion.mode!r} fuses nothing"
        )
    needed = {
        "perf.enabled": settings.perf.enabled,
        "perf.metrics.report_memory": settings.metrics.report_memory,
        "t2.quality.enabled (or .shadow)": settings.quality.shadow or settings.quality.enabled,
    }
    lacking = " and ".join(name for name, on in needed.items() if not on)
    return f"tracing is off; set {lacking} to true"


def _notes_on_gold(queries: Queries, gold: Gold) -> list[str]:
    """Return how queries and judgments fit; raise InputError if they do not at all."""
    query_ids = set(queries.frame["query_id"].to_list())
    judged = set(gold.query_ids)
    if not query_ids & judged:
        what = f"judges no query of {queries.source.name}; check that both belong together"
        raise InputError(what, where=gold.source.name)
    counts = {
        "queries without judgments, which score 0": len(query_ids - judged),
        "judged queries that are not in the queries file, which are left out": len(
            judged - query_ids
        ),
    }
    return [f"{what}: {number}" for what, number in counts.items() if number]


def _notes_on_run(scores: Scores, name: str) -> list[str]:
    counts = scores.counts
    notes = {
        "missing queries, which score 0": counts.missing,
        "failed calls, which score 0": counts.failed_calls,
        "repeated hits, which earn nothing": counts.repeats,
        "queries that are not in the queries file, which are left out": counts.not_in_gold,
    }
    return [f"run {name}: {what}: {number}" for what, number in notes.items() if number]


def _notes_on_lists(
    engine: QualityEngine, lists: Mapping[str, Ranked], inputs: _Inputs, name: str
) -> Iterator[str]:
    """Yield settings without effect and queries that a config cannot search for."""
    settings, rules = engine.settings, engine.rules
    for note in rules.notes():
        yield f"config {name}: {note}"
    if empty := sum(not ranked.candidates for ranked in lists.values()):
        limit = settings.retrieval.sim_threshold
        yield f"config {name}: queries without a candidate above sim_threshold {limit}: {empty}"
    if settings.fuses and (mute := sum(not rules.words(text) for _, text in inputs.texts)):
        yield f"config {name}: queries without a word, whose lexical ranking is by id: {mute}"


def _notes_on_corpus(corpus: Corpus, inputs: _Inputs) -> list[str]:
    item_ids = set(corpus.frame["item_id"].to_list())
    query_ids = {query_id for query_id, _ in inputs.texts}
    rows = inputs.gold.frame.select("query_id", "item_id", "grade").rows()
    relevant = {item for query_id, item, grade in rows if query_id in query_ids and grade > 0}
    missing = len(relevant - item_ids)
    return [f"relevant items that are not in the corpus: {missing}"] if missing else []


def _nothing_found(scores: Scores, name: str) -> list[str]:
    queries = scores.nothing_found
    return [f"config {name}: {nothing_found(queries)}"] if queries else []


def read_queries(path: str) -> Queries:
    """Read query ids and texts, tab-separated without a header; ids must differ."""
    file = _open(path)
    rows = list(_rows(file, path, 2))
    if not rows:
        raise InputError("holds no queries; write one per line: id, tab, text", where=file.name)
    if [column.lower() for column in rows[0].columns] == _HEADER:
        what = "is a header, and would be searched for like a query; delete this line"
        raise InputError(what, where=file.name, line=rows[0].line)
    seen: dict[str, int] = {}
    for line, (query_id, _) in rows:
        if query_id in seen:
            what = f"query id {query_id!r} is in line {seen[query_id]} too; ids must differ"
            raise InputError(what, where=file.name, line=line)
        seen[query_id] = line
        if not query_id:
            raise InputError("query_id is empty; every row needs one", where=file.name, line=line)
    ids, texts = zip(*(row.columns for row in rows), strict=True)
    table = pl.DataFrame({"query_id": ids, "text": texts}, schema_overrides=_TEXT)
    return Queries.from_frame(table, source=file.source)


def read_truth(path: str) -> Gold:
    """Read query ids, item ids and grades, tab-separated without a header."""
    file = _open(path)
    rows = list(_rows(file, path, 3))
    if not rows:
        what = "holds no judgments; write one per line: query id, tab, item id, tab, grade"
        raise InputError(what, where=file.name)
    ids, items, grades = zip(*(row.columns for row in rows), strict=True)
    table = pl.DataFrame(
        {"query_id": ids, "item_id": items, "grade": [grade.strip() for grade in grades]},
        schema_overrides=_TEXT,
    )
    lines = pl.Series([row.line for row in rows])
    return Gold.from_frame(table, lines=lines, source=file.source)


def _open(path: str) -> Input:
    """Open a file; the digest of standard input is taken while its bytes are at hand."""
    file = open_input(path)
    if file.data is None:
        return file
    digest = hashlib.sha256(file.data).hexdigest()
    return replace(file, source=replace(file.source, sha256=digest))


class _Row(NamedTuple):
    line: int
    columns: list[str]


def _rows(file: Input, path: str, count: int) -> Iterator[_Row]:
    for number, line in enumerate(io.StringIO(file.text(), newline=None), 1):
        text = line.rstrip("\n")
        if not text:
            continue
        columns = text.split("\t")
        if len(columns) != count:
            raise InputError(
                f"Expected {count} tab-separated columns on line {number} of {path}, "
                f"got {len(columns)}"
            )
        yield _Row(number, columns)
