"""From run files to a pool: read, taken together, written as JSONL, and told about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from karat.analysis.contenders import distinct_names
from karat.cli.interrupts import heed_interrupts
from karat.cli.numbers import whole
from karat.cli.scoring import parse_settings
from karat.errors import UsageError
from karat.formats import queries_beside, read_corpus, read_gold, read_queries, scan_run
from karat.judging.pool import pool_runs
from karat.judging.pool_bias import bias_measures, pool_bias
from karat.measures.conventions import SETTABLE, Conventions, conventions_of
from karat.measures.names import Measure
from karat.reports.document import utf8
from karat.reports.outputs import (
    PAGE_FORMS,
    Form,
    Output,
    forms_of,
    parse_outputs,
    write_outputs,
    write_stdout,
)
from karat.reports.pages import Page, show_page
from karat.reports.pooling import Pooled, pool_page
from karat.reports.sheets import Sheet
from karat.reports.to_json import to_json
from karat.tables import Blocks, Queries, Run

_POOL = Form("pool", ".jsonl", "the pairs, one a line", "pooling.to_jsonl")
FORMS = {**forms_of(_POOL), **PAGE_FORMS}
# The conventions that decide what stands at the top, and how it is shuffled; then those that
# decide what a run is worth.
_HEEDED = ("order", "ties", "repeats", "seed")
_SCORED = ("missing", "empty_gold", "rel", "gain", "k")


class Documented(Protocol):
    """Whatever has a document and a page."""

    def document(self) -> dict[str, Any]: ...
    def page(self) -> Page: ...


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat pool`` was asked for."""

    runs: Sequence[str]
    gold: Sequence[str] = ()
    queries: str | None = None
    corpus: str | None = None
    depth: str = "10"
    sample: str | None = None
    include_judged: bool = False
    without_texts: bool = False
    profile: str = "karat"
    settings: Sequence[str] = ()
    seed: str | None = None
    strict: bool = False
    run_format: str | None = None
    gold_format: str | None = None
    outputs: Sequence[str] = ()
    as_json: bool = False
    bias: bool = False
    measures: Sequence[str] | None = None

    def files(self) -> list[str]:
        """Every input by name."""
        named = [*self.runs, *self.gold, self.queries, self.corpus]
        return [name for name in named if name is not None]


def pool_files(request: Request) -> tuple[Pooled, list[Output]]:
    """Read everything and pool it; what cannot be done is refused before any run is read."""
    heed_interrupts()
    outputs = parse_outputs(
        request.outputs, inputs=request.files(), stdout_taken=request.as_json, forms=FORMS
    )
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    conventions = _conventions(request)
    measures = _measures(request, conventions)
    depth = whole("--depth", request.depth)
    sample = None if request.sample is None else whole("--sample", request.sample)
    gold = [
        read_gold(name, format=request.gold_format, duplicates=conventions.duplicates)
        for name in request.gold
    ]
    queries = queries_of(request.queries, request.gold, request.gold_format)
    corpus = None if request.corpus is None else read_corpus(request.corpus)
    runs = _runs(request)
    pool = pool_runs(
        runs,
        depth=depth,
        gold=gold,
        queries=queries,
        corpus=corpus,
        conventions=conventions,
        sample=sample,
        include_judged=request.include_judged,
    )
    if not request.without_texts and any(output.form is _POOL for output in outputs):
        pool.check_texts()
    inputs = {
        "runs": [run.source for run in runs.values()],
        "gold": [one.source for one in gold],
        "queries": None if queries is None else queries.source,
        "corpus": None if corpus is None else corpus.source,
    }
    body, shown = pool.document(), ["profile", "order", "ties", "repeats"]
    if request.bias:
        bias = pool_bias(
            runs,
            gold,
            depth=depth,
            measures=measures,
            queries=queries,
            conventions=conventions,
        )
        body, shown = {**body, "bias": bias.document()}, [*shown, *_SCORED]
    told = {name: getattr(conventions, name) for name in shown}
    return Pooled(pool, Sheet(body, told, inputs, pool_page)), outputs


def _conventions(request: Request) -> Conventions:
    known, what = (
        ([*_HEEDED, *_SCORED], "the bias of a pool") if request.bias else (_HEEDED, "a pool")
    )
    return heeded(request.profile, request.settings, request.seed, known, what)


def _measures(request: Request, conventions: Conventions) -> list[Measure]:
    """The measures that gold is to be fair by; an option that would do nothing is refused."""
    if request.measures and not request.bias:
        raise UsageError("-m names the measures of --bias; a pool alone is scored by none")
    if request.bias and not request.gold:
        raise UsageError("--bias asks whether gold is fair to the runs; give it with --gold")
    return bias_measures(request.measures, conventions=conventions)


def heeded(
    profile: str, texts: Sequence[str], seed: str | None, known: Collection[str], what: str
) -> Conventions:
    """The conventions of a profile, with settings changed that ``what`` depends on."""
    settings = parse_settings(texts)
    for key in settings:
        if key in SETTABLE and key not in known:
            raise UsageError(f"--set {key}: {what} does not depend on it, only on {_any(known)}")
    if seed is not None and settings.setdefault("seed", seed) != seed:
        raise UsageError("--seed and --set seed=… contradict each other")
    return conventions_of(profile, settings)


def queries_of(queries: str | None, gold: Sequence[str], form: str | None) -> Queries | None:
    """The queries file, else the queries that came with the gold."""
    if queries is not None:
        return read_queries(queries)
    # A pipe can be read once only, and the gold has been read from it.
    files = (name for name in gold if Path(name).is_file() or Path(name).is_dir())
    beside = (queries_beside(name, format=form) for name in files)
    return next((found for found in beside if found is not None), None)


def publish(rendered: Documented, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, then print the page unless something else goes to standard output."""
    write_outputs(outputs, rendered)
    if as_json:
        write_stdout(to_json(rendered))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.reports.terminal import standard_console

        show_page(rendered.page(), standard_console())


def _runs(request: Request) -> dict[str, Run | Blocks]:
    """The runs by name, in order; a pipe can be read once only, and is read here."""
    scans: list[Run | Blocks] = []
    for name in request.runs:
        run = scan_run(name, format=request.run_format, strict=request.strict)
        scans.append(run.read() if name == "-" else run)
    names = distinct_names([utf8(run.name) for run in scans])
    return dict(zip(names, scans, strict=True))


def _any(names: Collection[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}"
