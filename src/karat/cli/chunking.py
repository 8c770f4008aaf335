"""From whole documents to a report on chunkings: cut, index, search, score, compare."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from karat.analysis.compare import compare_scores
from karat.analysis.contenders import contenders_of
from karat.analysis.verdicts import Rule
from karat.cli.cuts import Cut
from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import counting
from karat.cli.scoring import parse_settings, read_the_gold
from karat.errors import InputError, UsageError, unknown
from karat.formats import read_corpus, read_queries, write_corpus
from karat.formats.detect import format_for_writing
from karat.formats.field_mapping import Fields
from karat.formats.yamls import Place
from karat.measures.conventions import Conventions, conventions_of
from karat.measures.names import Measure, parse_measures
from karat.measures.prepare import Prepared, prepare
from karat.measures.ranked import is_budget
from karat.measures.scores import Scores, score
from karat.reports.document import Report, build_report
from karat.reports.outputs import parse_output
from karat.retrievers.blueprints import parse_systems
from karat.retrievers.chunkers import ALGOS, Chunker, chunk_corpus, documents
from karat.retrievers.kinds import KINDS
from karat.retrievers.system import DEFAULT_K
from karat.retrievers.workshop import Workshop
from karat.tables import Corpus, Gold, Queries, Run

MEASURES = ("R@5", "DistinctDocs@5")
RETRIEVER = "bm25"
# Formats of a corpus that keep every column.
_WHOLE = ("jsonl", "csv", "tsv-with-header", "parquet")
# A name alone does not tell their parts or their model.
_NEED_MORE = ("dense", "fuse", "route", "sparse")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat chunks`` was asked for."""

    docs: str
    queries: str | None = None
    gold: str | None = None
    chunkers: Sequence[str] = ()
    retriever: str | None = None
    measures: Sequence[str] | None = None
    settings: Sequence[str] = ()
    seed: str | None = None
    outputs: Sequence[str] = ()
    write: str | None = None
    as_json: bool = False
    quiet: bool = False

    def files(self) -> list[str]:
        """Every input by name."""
        return [name for name in (self.docs, self.queries, self.gold) if name is not None]

    @property
    def piped(self) -> bool:
        """Whether standard output is taken by something else than a report."""
        return self.as_json or self.write == "-"


@dataclass(frozen=True, eq=False)
class Compared:
    """What each chunker made of the documents, and how what it made is found."""

    cuts: list[Cut]
    report: Report | None = None


@dataclass(frozen=True, eq=False)
class _Asked:
    """What the chunks are searched for, and how the lists are scored."""

    gold: Gold
    queries: Queries
    measures: list[Measure]
    conventions: Conventions
    retriever: str


def compare_chunkings(request: Request) -> Compared:
    """Cut the documents in each way; with queries, also search and score, and compare."""
    heed_interrupts()
    chunkers = _chunkers(request)
    _check(request, chunkers)
    asked = None if request.queries is None else _asked(request, request.queries)
    docs = read_corpus(request.docs)
    if asked is not None:
        _check_gold(asked.gold, docs)
    cuts, scores = [], []
    for chunker in chunkers:
        chunks = chunk_corpus(docs, chunker)
        cut = Cut.of(chunker, docs, chunks)
        if request.write is not None:
            form = "jsonl" if request.write == "-" else None
            write_corpus(chunks, request.write, format=form)
        if asked is not None:
            cut, scored = _scored(cut, chunks, asked, quiet=request.quiet or request.piped)
            scores.append(scored)
        cuts.append(cut)
    report = None if asked is None else _report(scores, asked, docs)
    return Compared(cuts, report)


def _chunkers(request: Request) -> list[Chunker]:
    given = [Chunker.parse(text) for text in request.chunkers or ALGOS]
    for at, chunker in enumerate(given):
        if chunker in given[:at]:
            raise UsageError(f"--chunker {chunker.name} is given twice; keep one")
    return given


def _check(request: Request, chunkers: Sequence[Chunker]) -> None:
    """Refuse what would be ignored, before anything is read."""
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    if request.queries == "-" and request.gold is None:
        raise UsageError("queries with gold inside are read twice; give a file, not -")
    if request.write is not None:
        _check_writing(request, request.write, chunkers)
    if request.queries is not None:
        return
    if request.write is None:
        raise UsageError("give --queries to compare chunkings, or --write to keep one's chunks")
    for option, value in (
        ("--gold", request.gold),
        ("--retriever", request.retriever),
        ("-m", request.measures),
        ("--set", request.settings),
        ("--seed", request.seed),
        ("-o", request.outputs),
    ):
        if value:
            raise UsageError(f"{option} is for scoring, which needs --queries")


def _check_writing(request: Request, path: str, chunkers: Sequence[Chunker]) -> None:
    if len(chunkers) > 1 or not request.chunkers:
        raise UsageError("--write keeps the chunks of one chunker; give one --chunker")
    if path != "-" and format_for_writing(path, "corpus", None).name not in _WHOLE:
        raise UsageError(f"--write {path}: end it in .jsonl, .csv, .tsv or .parquet")
    if path == "-" and request.as_json:
        raise UsageError("--write - and --json both go to standard output; name a file")
    outputs = [str(one.path) for one in map(parse_output, request.outputs) if one.path is not None]
    if os.path.realpath(path) in map(os.path.realpath, [*request.files(), *outputs]):
        raise UsageError(f"--write {path} is also an input or output; choose another name")


def _asked(request: Request, queries: str) -> _Asked:
    """Everything that is spelled out is checked before anything is read."""
    settings = parse_settings(request.settings)
    if settings.setdefault("level", "span") != "span":
        raise UsageError("the gold of karat chunks is spans: level=span cannot be changed")
    if request.seed is not None and settings.setdefault("seed", request.seed) != request.seed:
        raise UsageError("--seed and --set seed=… contradict each other")
    conventions = conventions_of("karat", settings)
    measures = parse_measures(request.measures or MEASURES, conventions=conventions)
    retriever = request.retriever or RETRIEVER
    known = [one.name for one in KINDS.values() if not one.live and one.name not in _NEED_MORE]
    if retriever in KINDS and retriever not in known:
        raise UsageError(
            f"--retriever {retriever} cannot index chunks by its name alone; these can:"
            f" {', '.join(known)}"
        )
    if retriever not in known:
        raise unknown("retriever", retriever, known)
    gold = read_the_gold(
        request.gold or queries,
        in_queries=request.gold is None,
        duplicates=conventions.duplicates,
        fields=Fields(),
    )
    return _Asked(gold, read_queries(queries), measures, conventions, retriever)


def _check_gold(gold: Gold, docs: Corpus) -> None:
    """Refuse gold that is no spans, or spans that lie nowhere in the documents."""
    names = documents(docs)
    where = gold.source.name
    frame = gold.frame
    if "start" in frame.columns and "end" in frame.columns:
        frame = frame.filter(pl.col("start").is_null() | pl.col("end").is_null())
    if frame.height:
        raise InputError(
            f"gold item {frame['item_id'][0]!r} is not a span; write each as doc_id:start-end, in"
            " characters of the whole document: spans outlive a change of chunking, ids of"
            " chunks do not",
            where=where,
        )
    if not gold.frame.height:
        raise InputError("holds not one span; there is nothing to find", where=where)
    lengths = pl.DataFrame({"item_id": names, "length": docs.frame["text"].str.len_chars()})
    placed = gold.frame.join(lengths, on="item_id", how="left", maintain_order="left")
    lost = placed.filter(pl.col("length").is_null())
    if lost.height:
        few = ", ".join(map(repr, names[:3]))
        raise InputError(
            f"document {lost['item_id'][0]!r} is not among those of {docs.source.name}, which are"
            f" called {few}{' …' if len(names) > 3 else ''}; gold must name them alike",
            where=where,
        )
    beyond = placed.filter(pl.col("end") > pl.col("length"))
    if beyond.height:
        doc, start, end, length = beyond.select("item_id", "start", "end", "length").row(0)
        raise InputError(
            f"the span {doc}:{start}-{end} ends behind its document, which has {length:,}"
            " characters; mark it again on the text as it is",
            where=where,
        )


def _scored(cut: Cut, chunks: Corpus, asked: _Asked, *, quiet: bool) -> tuple[Cut, Scores]:
    """Index the chunks, search them and score the lists."""
    prepared = prepare(asked.gold, asked.conventions, queries=asked.queries, corpus=chunks)
    k = max(_depth(measure, prepared, chunks) for measure in asked.measures)
    run = _searched(cut.chunker.name, chunks, asked, k, quiet=quiet)
    size = run.meta.get("index_bytes")
    cut = replace(cut, index_bytes=size if isinstance(size, int) else None)
    figures = cut.document()
    told: Mapping[str, Any] = {"chunker": figures.pop("chunker"), "chunks": figures}
    run = replace(run, meta={**run.meta, **told})
    return cut, score(run, prepared, asked.measures)


def _depth(measure: Measure, prepared: Prepared, chunks: Corpus) -> int:
    """How many chunks a measure may look at; a budget of tokens holds the shortest at most."""
    k = measure.k
    if k == "k":
        return int(prepared.own_k.max())
    if is_budget(k):
        words = chunks.frame.select(pl.col("text").str.count_matches(r"\S+").cast(pl.Int64).sort())
        fit = words.select((pl.col("text").cum_sum() <= int(str(k).removesuffix("tok"))).sum())
        return max(1, int(fit.item()))
    return k if isinstance(k, int) else DEFAULT_K


def _searched(name: str, chunks: Corpus, asked: _Asked, k: int, *, quiet: bool) -> Run:
    """What a system over the chunks returns for every query."""
    place = Place("--retriever")
    blueprint = parse_systems({name: {"retriever": asked.retriever}}, place)[name]
    with counting(name, asked.queries.frame.height, quiet=quiet) as bar:
        system = Workshop(corpus=lambda: chunks, progress=bar.build).build(blueprint)
        return system.search(asked.queries, min(k, chunks.frame.height), advance=bar.advance)


def _report(scores: Sequence[Scores], asked: _Asked, docs: Corpus) -> Report:
    report = build_report(scores, gold=asked.gold, queries=asked.queries, corpus=docs)
    if len(scores) == 1:
        return report
    return replace(
        report, comparisons=compare_scores(contenders_of(scores), Rule(), queries=asked.queries)
    )
