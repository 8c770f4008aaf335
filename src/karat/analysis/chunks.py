"""Compare chunkings of documents, searched and scored on the same spans."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError, UsageError, unknown
from karat.evaluation.comparison import Comparisons, compare_scores
from karat.evaluation.inputs import gold_of
from karat.evaluation.systems import compared_systems
from karat.evaluation.verdict import Rule
from karat.formats.field_mapping import Fields
from karat.formats.readers import read_corpus, read_queries, write_corpus
from karat.formats.registry import format_for_writing
from karat.formats.settings import Place
from karat.measure.conventions import Conventions, conventions_of
from karat.measure.names import Measure, parse_measures
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranked import is_budget
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import NOTHING, plural
from karat.pages.page import Page, Section
from karat.pages.result import Result
from karat.retrieve.build_context import BuildContext
from karat.retrieve.chunking import ALGOS, Chunker, chunk_corpus, documents
from karat.retrieve.search import OpenBar, no_bar
from karat.retrieve.system import DEFAULT_K, build_system
from karat.retrieve.system_config import KINDS, parse_systems

MEASURES = ("R@5", "DistinctDocs@5")
RETRIEVER = "bm25"
# A name alone does not tell their parts or their model.
_NEED_MORE = ("dense", "fuse", "route", "sparse")
# Formats of a corpus that keep every column.
_EVERY_COLUMN = ("jsonl", "csv", "tsv-with-header", "parquet")


@dataclass(frozen=True)
class Chunking:
    """The chunks that one chunker made."""

    chunker: Chunker
    chunks: int
    documents: int
    empty_documents: int
    mean_chars: float | None
    max_chars: int | None
    mean_words: float | None
    max_words: int | None
    index_bytes: int | None = None

    @classmethod
    def of(cls, chunker: Chunker, docs: Corpus, chunks: Corpus) -> Chunking:
        """Count the chunks and measure them."""
        text = chunks.frame["text"]
        chars, words = text.str.len_chars(), text.str.count_matches(r"\S+")
        return cls(
            chunker,
            chunks.frame.height,
            docs.frame.height,
            docs.frame.height - chunks.frame["doc_id"].n_unique(),
            *_mean_and_max(chars),
            *_mean_and_max(words),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return asdict(self) | {"chunker": self.chunker.model_dump()}


def _mean_and_max(lengths: pl.Series) -> tuple[float | None, int | None]:
    values = lengths.to_numpy()
    return (float(values.mean()), int(values.max())) if len(values) else (None, None)


@dataclass(frozen=True, eq=False, repr=False)
class Chunks(Result):
    """Several chunkings of the same documents, with scores where there are queries.

    ``comparisons`` compare every chunking with the first.
    """

    chunkings: Sequence[Chunking]
    docs: Corpus
    task: SearchTask | None = None
    scores: Sequence[Scores] = ()
    comparisons: Comparisons | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of every chunking as plain data."""
        return {"systems": [chunking.to_dict() for chunking in self.chunkings]}

    def page(self) -> Page:
        """Return the page: how many chunks there are, and how long."""
        grid = [["chunking", "chunks", "mean chars", "max", "mean words", "max", "index bytes"]]
        for chunking in self.chunkings:
            means = [chunking.mean_chars, chunking.mean_words]
            mean_chars, mean_words = (NOTHING if n is None else f"{n:,.1f}" for n in means)
            sizes = [chunking.max_chars, chunking.max_words, chunking.index_bytes]
            max_chars, max_words, size = (NOTHING if n is None else f"{n:,}" for n in sizes)
            cells = [mean_chars, max_chars, mean_words, max_words, size]
            grid.append([chunking.chunker.name, f"{chunking.chunks:,}", *cells])
        if all(chunking.index_bytes is None for chunking in self.chunkings):
            grid = [row[:-1] for row in grid]
        empty, all_documents = self.chunkings[0].empty_documents, self.chunkings[0].documents
        note = f"{empty:,} of {plural(all_documents, 'document')} without text, so without chunks"
        return Page("Chunkings", blocks=[Section("", grid, [note] if empty else [])])


@dataclass(frozen=True, eq=False)
class SearchTask:
    """The queries for the chunks, and how their lists are scored."""

    gold: Gold
    queries: Queries
    measures: list[Measure]
    conventions: Conventions
    retriever: str


def chunks(
    docs: str,
    *,
    queries: str | None = None,
    gold: str | None = None,
    chunkers: Sequence[str] = (),
    retriever: str | None = None,
    measures: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    write: str | None = None,
    open_bar: OpenBar = no_bar,
) -> Chunks:
    """Cut documents in several ways; with ``queries``, search the chunks, score and compare.

    ``chunkers`` are such as ``fixed:size=1200,overlap=200``; all built-in ones unless named. The
    gold is spans of characters, ``doc_id:start-end``, so it holds for every way of cutting.
    ``write`` is the file for the chunks.

    >>> chunker = "fixed:size=60,overlap=0"
    >>> result = karat.chunks("corpus.jsonl", chunkers=[chunker], write="chunks.jsonl")
    >>> result.chunkings[0].chunks
    60
    """
    chosen = list(dict.fromkeys(Chunker.parse(text) for text in chunkers or ALGOS))
    if write is not None:
        _check_writing(write, [docs, queries, gold], chunkers)
    task = None
    if queries is not None:
        task = _task(queries, gold, retriever or RETRIEVER, measures, settings or {})
    elif write is None or gold or retriever or measures or settings:
        raise UsageError("give queries to compare chunkings, or write to save the chunks of one")
    corpus = read_corpus(docs)
    if task is not None:
        _check_gold(task.gold, corpus)
    chunkings, scores = [], []
    for chunker in chosen:
        cut = chunk_corpus(corpus, chunker)
        chunking = Chunking.of(chunker, corpus, cut)
        if write is not None:
            write_corpus(cut, write, format="jsonl" if write == "-" else None)
        if task is not None:
            chunking, scored = _search(chunking, cut, task, open_bar)
            scores.append(scored)
        chunkings.append(chunking)
    comparisons = None
    if task is not None and len(scores) > 1:
        comparisons = compare_scores(compared_systems(scores), Rule(), queries=task.queries)
    return Chunks(chunkings, corpus, task, scores, comparisons)


def _check_writing(path: str, inputs: Sequence[str | None], chunkers: Sequence[str]) -> None:
    """Refuse a file that the chunks cannot be written to."""
    if len(chunkers) != 1:
        raise UsageError("write saves the chunks of one chunker; name one chunker")
    if path == "-":
        return
    if format_for_writing(path, "corpus", None).name not in _EVERY_COLUMN:
        raise UsageError(f"{path}: chunks are written to .jsonl, .csv, .tsv or .parquet")
    if os.path.realpath(path) in [os.path.realpath(name) for name in inputs if name]:
        raise UsageError(f"{path} is also an input; write the chunks to another file")


def _task(
    queries: str,
    gold: str | None,
    retriever: str,
    measures: Sequence[str] | None,
    settings: Mapping[str, str],
) -> SearchTask:
    """Read gold and queries; misspelled options are refused first."""
    chosen = dict(settings)
    if chosen.setdefault("level", "span") != "span":
        raise UsageError("the gold of karat chunks is spans: level=span cannot be changed")
    conventions = conventions_of("karat", chosen)
    parsed = parse_measures(measures or MEASURES, conventions=conventions)
    known = [name for name, kind in KINDS.items() if not kind.live and name not in _NEED_MORE]
    if retriever not in known:
        raise unknown("retriever of chunks", retriever, known)
    duplicates = conventions.duplicates
    judged = gold_of(gold or queries, queries, duplicates=duplicates, fields=Fields())
    return SearchTask(judged, read_queries(queries), parsed, conventions, retriever)


def _check_gold(gold: Gold, docs: Corpus) -> None:
    """Refuse gold that is not spans, or spans outside the documents."""
    frame, where = gold.frame, gold.source.name
    if not frame.height:
        raise InputError("holds no span; there is nothing to find", where=where)
    spans = frame if "start" in frame.columns else frame.with_columns(start=pl.lit(None))
    others = spans.filter(pl.col("start").is_null())
    if others.height:
        raise InputError(
            f"gold item {others['item_id'][0]!r} is not a span; write each as doc_id:start-end, in"
            " characters of the whole document: spans outlive a change of chunking, ids of chunks"
            " do not",
            where=where,
        )
    lengths = pl.DataFrame(
        {"item_id": documents(docs), "length": docs.frame["text"].str.len_chars()}
    )
    placed = spans.join(lengths, on="item_id", how="left", maintain_order="left")
    lost = placed.filter(pl.col("length").is_null())
    if lost.height:
        few = ", ".join(map(repr, lengths["item_id"][:3]))
        raise InputError(
            f"document {lost['item_id'][0]!r} is not in {docs.source.name}, whose documents are"
            f" called {few}; gold must use the same names",
            where=where,
        )
    beyond = placed.filter(pl.col("end") > pl.col("length"))
    if beyond.height:
        doc, start, end, length = beyond.select("item_id", "start", "end", "length").row(0)
        raise InputError(
            f"the span {doc}:{start}-{end} ends after its document, which has {length:,}"
            " characters; mark it again in the current text",
            where=where,
        )


def _search(
    chunking: Chunking, chunks: Corpus, task: SearchTask, open_bar: OpenBar
) -> tuple[Chunking, Scores]:
    """Index the chunks, search them and score the lists."""
    name = chunking.chunker.name
    prepared = prepare(task.gold, task.conventions, queries=task.queries, corpus=chunks)
    depth = max(_depth(measure, prepared, chunks) for measure in task.measures)
    config = parse_systems({name: {"retriever": task.retriever}}, Place("--retriever"))[name]
    with open_bar(name, task.queries.frame.height) as bar:
        system = build_system(config, BuildContext(corpus=lambda: chunks, progress=bar.build))
        k = min(depth, chunks.frame.height)
        run = system.search(task.queries, k, advance=bar.advance)
    size = run.meta.get("index_bytes")
    chunking = replace(chunking, index_bytes=size if isinstance(size, int) else None)
    numbers = chunking.to_dict()
    meta = {**run.meta, "chunker": numbers.pop("chunker"), "chunks": numbers}
    return chunking, score(replace(run, meta=meta), prepared, task.measures)


def _depth(measure: Measure, prepared: Prepared, chunks: Corpus) -> int:
    """Return how many chunks a measure may look at; a token budget fits the shortest at most."""
    k = measure.k
    if k == "k":
        return int(prepared.own_k.max())
    if is_budget(k):
        words = chunks.frame.select(pl.col("text").str.count_matches(r"\S+").cast(pl.Int64).sort())
        fit = words.select((pl.col("text").cum_sum() <= int(str(k).removesuffix("tok"))).sum())
        return max(1, int(fit.item()))
    return k if isinstance(k, int) else DEFAULT_K
