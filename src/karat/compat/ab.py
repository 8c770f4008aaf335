"""karat ab: two configs of a retrieval engine on the same queries, scored and compared.

The engine is ``retrieve.quality``. The second half of the module writes the JSON, CSV and traces
of an A/B harness, with its keys and its bytes. A trace is one line per query in
``rq_traces.jsonl``, if three settings allow it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.compat.report_outputs import refuse_short
from karat.data.columns import Source
from karat.data.tables import Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.evaluation.comparison import compare_scores
from karat.evaluation.report_text import headlines, nothing_found
from karat.evaluation.systems import compared_systems
from karat.evaluation.verdict import Rule
from karat.formats.files import Input, layout_suffix, open_input
from karat.formats.readers import read_corpus, read_run
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import utf8
from karat.pages.page import Page, Section, Sentence
from karat.pages.result import Result
from karat.pages.serialize import csv_cell, dumps
from karat.reports.document import Report
from karat.reports.outputs import Output, write_files
from karat.retrieve.quality import (
    QualityConfig,
    QualityEngine,
    QualitySettings,
    RankedItems,
    made_alike,
    read_config,
    read_document,
)
from karat.retrieve.search import OpenBar, no_bar

METRICS = ("recall", "mrr", "ndcg")
SCHEMA_VERSION = 1
PROFILE = "ab"
ABSENT, UNKNOWN = "absent", "unknown"
TRACES = "rq_traces.jsonl"
REVISION = "CLEMATIS_GIT_SHA"
REDACTED = "[REDACTED]"
_TRACE_VERSION = 1
_TRACE_FOLDER = "logs/quality"
# Keys of a system of kind quality that leave its lists as its config makes them.
_CONFIG_ALONE = frozenset(("retriever", "config", "k", "k_raw"))
_BASE_RANKING = (
    "The base ranking is by a hash of each text: the same everywhere, and without meaning."
)
# Columns of queries as some files name them in a header, which this format has none of.
_HEADER = ["qid", "query_text"]


class Side(NamedTuple):
    """One of the two configs as in the JSON, and its row for each query."""

    system: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, repr=False)
class AbResult(Result):
    """The report, the verdict in words, notes on the inputs, and traces by folder."""

    report: Mapping[str, Any]
    verdict: Sequence[Sentence]
    notes: Sequence[str]
    traces: Mapping[Path, Sequence[Mapping[str, Any]]]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the harness."""
        return dict(self.report)

    def to_frame(self) -> pl.DataFrame:
        """Return two rows per query, A and B."""
        return pl.read_csv(to_csv(self.report))

    def page(self) -> Page:
        """Return whether B is better than A, and the means of both."""
        return Page(
            title="B against A",
            headline=self.verdict,
            blocks=[Section(grid=macro_grid(self.report))],
            notes=[_BASE_RANKING] if self.report["corpus_digest"] != ABSENT else [],
        )

    def write(self, outputs: Sequence[Output]) -> list[str]:
        """Write the files and append the traces; return errors of traces."""
        rendered = [to_json(self.report), to_csv(self.report)]
        write_files([(out.path, data) for out, data in zip(outputs, rendered, strict=False)])
        failures = [append_traces(folder, traces) for folder, traces in self.traces.items()]
        return [f"{failure}; the run goes on" for failure in failures if failure is not None]


def ab(
    queries: str,
    truth: str,
    config_a: str,
    config_b: str,
    *,
    k: int = 10,
    corpus: str | None = None,
    run_a: str | None = None,
    run_b: str | None = None,
    emit_traces: bool = False,
    trace_dir: str | None = None,
    open_bar: OpenBar = no_bar,
) -> AbResult:
    """Score both configs on the same queries and compare them by nDCG@k.

    Either ``corpus`` is searched under both configs, or ``run_a`` and ``run_b`` are their runs
    made elsewhere. ``emit_traces`` appends a trace of each query to the config's folder, or
    ``trace_dir``.

    >>> folder = karat.init("ab").folder
    >>> inputs, configs = folder / "tests/fixtures/rq", folder / "examples/quality"
    >>> files = [f"{inputs}/queries.tsv", f"{inputs}/qrels.tsv"]
    >>> files += [f"{configs}/base.yaml", f"{configs}/lexical_fusion.yaml"]
    >>> result = karat.ab(*files, corpus=f"{inputs}/corpus.jsonl")
    >>> round(result.to_dict()["delta"]["macro"]["ndcg"], 3)
    0.434
    """
    runs = [run for run in (run_a, run_b) if run is not None]
    if len(runs) != (2 if corpus is None else 0):
        raise UsageError("give --corpus to search it, or both --runA and --runB")
    if emit_traces and corpus is None:
        raise UsageError("--emit-traces needs --corpus: runs leave nothing to trace")
    if trace_dir == "" or (trace_dir is not None and not emit_traces):
        raise UsageError("--trace-dir names the folder of traces; it needs --emit-traces")
    if [queries, truth, config_a, config_b, corpus, *runs].count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    inputs = _Inputs(read_queries(queries), read_truth(truth), k)
    gold_notes = _notes_on_gold(inputs.queries, inputs.gold)
    corpus_digest = ABSENT
    if corpus is None:
        inputs.notes.append("runs are given, so the configs are recorded and have no effect")
        for name, config, path in zip("AB", (config_a, config_b), runs, strict=True):
            with _naming_config(name):
                document = read_document(config)
            inputs.add(name, read_run(path, name=name), document.path, document.digest)
    else:
        corpus_digest = _add_searches([config_a, config_b], corpus, inputs, open_bar)
    traces: dict[Path, list[Mapping[str, Any]]] = {}
    for name, (settings, lists) in inputs.searches.items() if emit_traces else ():
        rows = [
            trace
            for query_id, text in inputs.texts
            if (trace := trace_of(settings, text, lists[query_id], os.environ))
        ]
        if rows:
            folder = Path(trace_dir or trace_folder(settings))
            traces.setdefault(folder, []).extend(rows)
        else:
            inputs.notes.append(f"config {name}: no traces: {_why_no_traces(settings)}")
    report = ab_document(
        *inputs.sides,
        k=k,
        corpus_digest=corpus_digest,
        queries_digest=digest_of_bytes(inputs.queries.source),
        qrels_digest=digest_of_bytes(inputs.gold.source),
    )
    notes = [*inputs.notes, *gold_notes]
    return AbResult(report, _verdict(inputs.scores), notes, traces)


def _verdict(scores: Sequence[Scores]) -> list[Sentence]:
    """Return whether B is better than A, in the words of every comparison."""
    comparison = compare_scores(compared_systems(scores, names=["A", "B"]), Rule())
    decisions = [decision.to_dict() for decision in comparison.decisions]
    return [
        Sentence(f"{headline.word}  {headline.because[0]}", headline.tone, headline.because[1:])
        for headline in headlines({"decisions": decisions})
    ]


@dataclass(frozen=True)
class _Inputs:
    """Queries, judgments, and the results of the configs so far."""

    queries: Queries
    gold: Gold
    k: int
    sides: list[Side] = field(default_factory=list)
    scores: list[Scores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    searches: dict[str, tuple[QualitySettings, Mapping[str, RankedItems]]] = field(
        default_factory=dict
    )
    """The settings of each config that was searched with, and what it found by query."""

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Each query's id and text."""
        return self.queries.frame.select("query_id", "text").rows()

    def add(self, name: str, run: Run, config_path: str, config_digest: str) -> None:
        """Score what a config returned, as the harness does: in the order that ranks the hits."""
        conventions = conventions_of(PROFILE, {"k": self.k, "order": run.order})
        measures = parse_measures(PROFILES[PROFILE].measures, conventions=conventions)
        prepared = prepare(self.gold, conventions, queries=self.queries)
        scores = score(run, prepared, measures, keep=self.k)
        counts = scores.counts
        self.note(f"run {name}: missing queries, which score 0", counts.missing)
        self.note(f"run {name}: failed calls, which score 0", counts.failed_calls)
        self.note(f"run {name}: repeated hits, which earn nothing", counts.repeats)
        left_out = "queries that are not in the queries file, which are left out"
        self.note(f"run {name}: {left_out}", counts.not_in_gold)
        if scores.nothing_found:
            self.notes.append(f"config {name}: {nothing_found(scores.nothing_found)}")
        self.scores.append(scores)
        self.sides.append(side_of(scores, config_path, config_digest))

    def note(self, message: str, count: int) -> None:
        """Add a note with a count, unless it is 0."""
        if count:
            self.notes.append(f"{message}: {count}")


def _add_searches(
    paths: Sequence[str], corpus_path: str, inputs: _Inputs, open_bar: OpenBar
) -> str:
    """Search the corpus under each config and score the lists; return the corpus's digest."""
    configs: dict[str, QualityConfig] = {}
    for name, path in zip("AB", paths, strict=True):
        with _naming_config(name):
            configs[name] = read_config(path)
    is_jsonl = layout_suffix(corpus_path) == ".jsonl"
    corpus = read_corpus(corpus_path, format="jsonl" if is_jsonl else None)
    for name, config in configs.items():
        inputs.notes.extend(f"config {name}: {note}" for note in config.notes)
    for name, config in configs.items():
        with _naming_config(name):
            engine = QualityEngine(corpus, config.settings)
        lists = {}
        with open_bar(name, len(inputs.texts)) as bar:
            for query_id, text in inputs.texts:
                lists[query_id] = engine.rank(text, inputs.k)
                bar.advance(1)
        # Settings without effect, and queries that a config cannot search for.
        settings, rules = engine.settings, engine.rules
        inputs.notes.extend(f"config {name}: {note}" for note in rules.notes())
        limit = settings.sim_threshold
        empty = sum(not ranked.candidates for ranked in lists.values())
        inputs.note(
            f"config {name}: queries without a candidate above sim_threshold {limit}", empty
        )
        wordless = sum(not rules.words(text) for _, text in inputs.texts) if settings.fuses else 0
        inputs.note(
            f"config {name}: queries without a word, whose lexical ranking is by id", wordless
        )
        run = Run.from_dict({query_id: ranked.item_ids for query_id, ranked in lists.items()})
        inputs.add(name, run, config.document.path, config.document.digest)
        inputs.searches[name] = (config.settings, lists)
    query_ids = {query_id for query_id, _ in inputs.texts}
    judged = inputs.gold.frame.filter(pl.col("query_id").is_in(query_ids) & (pl.col("grade") > 0))
    absent = {*judged["item_id"]} - {*corpus.frame["item_id"]}
    inputs.note("relevant items that are not in the corpus", len(absent))
    return digest_of_bytes(corpus.source)


@contextmanager
def _naming_config(name: str) -> Iterator[None]:
    """Add to an error which config it is about: both may have the same name, in other folders."""
    try:
        yield
    except InputError as error:
        raise InputError(f"config {name}: {error}") from None


def _why_no_traces(settings: QualitySettings) -> str:
    if settings.traced:
        mode = settings.fusion_mode
        fused = f"only fused lists are traced, and fusion.mode {mode!r} fuses nothing"
        return "no query has a candidate" if settings.fuses else fused
    needed = {
        "perf.enabled": settings.perf_enabled,
        "perf.metrics.report_memory": settings.report_memory,
        "t2.quality.enabled (or .shadow)": settings.shadow or settings.quality_enabled,
    }
    off = " and ".join(name for name, on in needed.items() if not on)
    return f"tracing is off; set {off} to true"


def _notes_on_gold(queries: Queries, gold: Gold) -> list[str]:
    """Return how queries and judgments fit; raise InputError if they do not at all."""
    query_ids, judged = {*queries.frame["query_id"]}, {*gold.query_ids}
    if not query_ids & judged:
        message = f"judges no query of {queries.source.name}; check that both belong together"
        raise InputError(message, where=gold.source.name)
    sets = {
        "queries without judgments, which score 0": query_ids - judged,
        "judged queries that are not in the queries file, which are left out": judged - query_ids,
    }
    return [f"{message}: {len(ids)}" for message, ids in sets.items() if ids]


def read_queries(path: str) -> Queries:
    """Read query ids and texts, tab-separated without a header; ids must differ."""
    file, table, lines = _read(path, ("query_id", "text"), "queries")
    if [name.lower() for name in table.row(0)] == _HEADER:
        message = "is a header, and would be read as a query; delete this line"
        raise InputError(message, where=file.name, line=lines[0])
    return Queries.from_frame(table, lines=lines, source=file.source)


def read_truth(path: str) -> Gold:
    """Read query ids, item ids and grades, tab-separated without a header."""
    file, table, lines = _read(path, ("query_id", "item_id", "grade"), "judgments")
    table = table.with_columns(pl.col("grade").str.strip_chars())
    return Gold.from_frame(table, lines=lines, source=file.source)


def _read(path: str, names: Sequence[str], what: str) -> tuple[Input, pl.DataFrame, pl.Series]:
    """Read tab-separated rows and their line numbers; blank lines are left out."""
    file = open_input(path)
    rows = {}
    for number, line in enumerate(io.StringIO(file.text(), newline=None), 1):
        if text := line.rstrip("\n"):
            columns = text.split("\t")
            if len(columns) != len(names):
                raise InputError(
                    f"Expected {len(names)} tab-separated columns on line {number} of {path}, "
                    f"got {len(columns)}"
                )
            rows[number] = columns
    if not rows:
        message = f"holds no {what}; write one per line: {', tab, '.join(names)}"
        raise InputError(message, where=file.name)
    table = pl.DataFrame(list(rows.values()), dict.fromkeys(names, pl.String), orient="row")
    return file, table, pl.Series(list(rows))


# The harness's output.


def ab_document(
    a: Side, b: Side, *, k: int, corpus_digest: str, queries_digest: str, qrels_digest: str
) -> dict[str, Any]:
    """Return both sides over the same queries, in the order of the queries file."""
    return {
        "schema_version": SCHEMA_VERSION,
        "k": k,
        "corpus_digest": corpus_digest,
        "queries_digest": queries_digest,
        "qrels_digest": qrels_digest,
        "systems": {"A": a.system, "B": b.system},
        "delta": {"macro": _delta(a.system["metrics"]["macro"], b.system["metrics"]["macro"])},
        "per_query": [
            {"qid": row_a["qid"], "A": row_a, "B": row_b, "delta": _delta(row_a, row_b)}
            for row_a, row_b in zip(a.rows, b.rows, strict=True)
        ],
    }


def _delta(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, float]:
    return {name: b[name] - a[name] for name in METRICS}


def to_json(document: Mapping[str, Any]) -> bytes:
    """Return the report as JSON, stable to the byte, without a newline at the end."""
    return dumps(document).removesuffix(b"\n")


def to_csv(document: Mapping[str, Any]) -> bytes:
    """Return two rows per query, A and B, with six decimals."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["qid", "system", *METRICS, "hits"])
    for query in document["per_query"]:
        for system in "AB":
            row = query[system]
            values = [f"{row[name]:.6f}" for name in METRICS]
            hits = csv_cell(",".join(row["hits"]))
            writer.writerow([csv_cell(row["qid"]), system, *values, hits])
    return buffer.getvalue().encode()


def macro_grid(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the means side by side, for a terminal."""
    a, b = (document["systems"][name]["metrics"]["macro"] for name in "AB")
    grid = [["mean", "A", "B", "B − A"]]
    for name, delta in document["delta"]["macro"].items():
        # A change too small to be seen has no sign.
        change = f"{round(delta, 4) + 0.0:+.4f}"
        grid.append([f"{name}@{document['k']}", f"{a[name]:.4f}", f"{b[name]:.4f}", change])
    return grid


def report_to_json(report: Report) -> bytes:
    """Return a report on two systems, the first of them A, as JSON."""
    return to_json(ab_report(report))


def report_to_csv(report: Report) -> bytes:
    """Return a report on two systems, the first of them A, as CSV."""
    return to_csv(ab_report(report))


def ab_report(report: Report) -> dict[str, Any]:
    """Return the two systems of a report as the harness reports them."""
    a, b = (system.scores for system in report.systems)
    k, queries = a.conventions.k, report.tables and report.tables.queries
    named = queries is not None and "k" in queries.frame.columns
    if queries is not None and named and any(queries.frame["k"].drop_nulls() != k):
        raise UsageError(
            f"output ab: has one k for all queries, here {k}; {queries.source.name} brings others"
        )
    for scores in (a, b):
        refuse_short("ab", scores, report.tables and report.tables.corpus)
    return ab_document(
        side_of(a, *_config_of(a)),
        side_of(b, *_config_of(b)),
        k=k,
        corpus_digest=ABSENT if report.corpus is None else digest_of_bytes(report.corpus),
        queries_digest=ABSENT if report.queries is None else digest_of_bytes(report.queries),
        qrels_digest=digest_of_bytes(report.gold),
    )


def side_of(scores: Scores, config_path: str, config_digest: str) -> Side:
    """Return the result of one config: its scores under the profile ab, with the top k of lists."""
    measures = parse_measures(PROFILES[PROFILE].measures, conventions=scores.conventions)
    names = [str(measure) for measure in measures]
    means = scores.means()
    macro = [mean for mean in (means[name] for name in names) if mean is not None]
    hits: dict[int, list[str]] = defaultdict(list)
    if scores.lists is not None:
        top = scores.lists.filter(pl.col("rank") <= scores.conventions.k)
        judged = top.filter(pl.col("grade").is_not_null()).sort("row", "rank")
        for row, item_id in judged.select("row", "item_id").rows():
            hits[row].append(item_id)
    rows = []
    for at, (query_id, *values) in enumerate(scores.table.select("query_id", *names).rows()):
        if None in values:
            raise UsageError(
                f"output ab: has a number for every query, and {query_id!r} has none; leave "
                "missing and empty_gold as the profile ab has them"
            )
        numbers = dict(zip(METRICS, values, strict=True))
        rows.append({"qid": query_id, **numbers, "hits": hits[at]})
    metrics = {"macro": dict(zip(METRICS, macro, strict=True))}
    system = {"config_path": config_path, "config_digest": config_digest, "metrics": metrics}
    return Side(system, rows)


def digest_of_bytes(source: Source) -> str:
    """Return the sha256 of an input; the harness needs one even if it is not a file."""
    digest = source.digest()
    if digest is None:
        raise InputError("is not a file that can be hashed; give a file", where=source.name)
    return digest


def _config_of(scores: Scores) -> tuple[str, str]:
    """Return the config of a run and its digest: the harness's own, else what the log has."""
    meta = scores.meta
    config = meta.get("config")
    alone = isinstance(config, Mapping) and config.keys() <= _CONFIG_ALONE
    if meta.get("retriever") == "quality" and alone:
        return str(meta.get("config_path")), str(meta.get("settings_digest"))
    return utf8(scores.source.name), str(meta.get("config_digest", UNKNOWN))


def trace_of(
    settings: QualitySettings, text: str, ranked: RankedItems, environment: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the trace of one query; None if tracing is off or nothing was fused."""
    if not settings.traced or (settings.quality_enabled and not ranked.fused):
        return None
    k = len(ranked.item_ids)
    names: tuple[str, ...] = ("id", "score")
    columns: tuple[Sequence[Any], ...] = (ranked.item_ids, ranked.base_scores)
    if settings.quality_enabled:
        names = ("id", "rank_sem", "rank_fused", "score_fused")
        columns = (ranked.item_ids, ranked.base_ranks, range(1, k + 1), ranked.fused or ())
        meta = {
            "reason": "enabled",
            "note": "enabled trace; fused ordering active",
            "alpha": settings.alpha_semantic,
            "lex_hits": ranked.lexical_hits,
        }
    else:
        note = "shadow trace; rankings unchanged"
        meta = {"reason": settings.trace_reason or "shadow", "note": note}
    return {
        "trace_schema_version": _TRACE_VERSION,
        "git_sha": environment.get(REVISION, "unknown"),
        "config_digest": gate_digest(settings),
        "clock": 0,
        "seed": 0,
        "query": REDACTED if settings.redact else text.strip(),
        "query_id": query_digest(text),
        "meta": {"k": k, **meta},
        "items": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
    }


def gate_digest(settings: QualitySettings) -> str:
    """Return the sha256 of the five settings that decide about traces."""
    metrics = {"report_memory": settings.report_memory}
    quality = {
        "enabled": settings.quality_enabled,
        "shadow": settings.shadow,
        "redact": settings.redact,
    }
    perf = {"enabled": settings.perf_enabled, "metrics": metrics}
    decisive = {"perf": perf, "t2": {"quality": quality}}
    return hashlib.sha256(_line(decisive).encode()).hexdigest()


def query_digest(text: str) -> str:
    """Return a query's id in traces: the sha1 of its normalised text.

    >>> query_digest("  Apple   TART ") == query_digest("apple tart")
    True
    """
    return hashlib.sha1(made_alike(text).encode(), usedforsecurity=False).hexdigest()


def trace_folder(settings: QualitySettings) -> Path:
    """Return the folder of a config's traces."""
    return Path(settings.metrics_trace_dir or settings.trace_dir or _TRACE_FOLDER)


def append_traces(folder: Path, traces: Sequence[Mapping[str, Any]]) -> str | None:
    """Append traces to the folder's file; return an error, since traces never stop a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / TRACES).open("a+b") as file:
            # A stop in the middle of a line must not spoil the next one.
            if file.tell():
                file.seek(-1, os.SEEK_END)
                file.write(b"" if file.read() == b"\n" else b"\n")
            file.writelines(f"{_line(trace)}\n".encode() for trace in traces)
    except OSError as error:
        return f"{folder / TRACES}: traces cannot be written: {error.strerror or error}"
    return None


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
