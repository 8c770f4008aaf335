"""karat ab: two configs of a retrieval engine on the same queries, scored and compared.

The engine is ``retrieve.quality``; the JSON, CSV and traces are in ``ab_output``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from karat.compat.ab_output import (
    ABSENT,
    PROFILE,
    Side,
    ab_document,
    append_traces,
    digest_of_bytes,
    macro_grid,
    side_of,
    to_csv,
    to_json,
    trace_folder,
    trace_of,
)
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
from karat.pages.page import Page, Section, Sentence
from karat.pages.result import Result
from karat.reports.outputs import Output, write_files
from karat.retrieve.quality import (
    QualityConfig,
    QualityEngine,
    QualitySettings,
    RankedItems,
    read_config,
    read_document,
)
from karat.retrieve.search import OpenBar, no_bar

_BASE_RANKING = (
    "The base ranking is by a hash of each text: the same everywhere, and without meaning."
)
# Columns of queries as some files name them in a header, which this format has none of.
_HEADER = ["qid", "query_text"]


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


def write_ab(result: AbResult, outputs: Sequence[Output]) -> list[str]:
    """Write the files and append the traces; return what went wrong with traces."""
    rendered = [to_json(result.report), to_csv(result.report)]
    write_files([(output.path, data) for output, data in zip(outputs, rendered, strict=False)])
    failures = [append_traces(folder, traces) for folder, traces in result.traces.items()]
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

    Either ``corpus`` is searched under both configs, or ``run_a`` and ``run_b`` are what they
    returned elsewhere. ``emit_traces`` appends a trace of each query to the config's folder, or
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
    """Queries and judgments, and what the two configs made of them so far."""

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
        """Note how often something happened, if it did."""
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
        message = "is a header, and would be searched for like a query; delete this line"
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
