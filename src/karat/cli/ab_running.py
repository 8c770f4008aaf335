"""From two configs to one report: read the inputs, search or take runs, score, write, tell."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from karat.cli.ab_inputs import Inputs, read_queries, read_truth
from karat.cli.ab_notes import about_gold, about_items, about_lists, about_run, why_no_traces
from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import counting
from karat.errors import InputError, UsageError
from karat.formats import read_corpus, read_run
from karat.formats.files import layout_suffix
from karat.measures.conventions import PROFILES, conventions_of
from karat.measures.names import parse_measures
from karat.measures.scores import Scores, prepare, score
from karat.reports.notes import nothing_found
from karat.reports.outputs import Output, packed, parse_outputs, write_stdout, write_whole
from karat.reports.to_ab import (
    ABSENT,
    PROFILE,
    AbReport,
    Side,
    digest_of_bytes,
    macro_grid,
    side_of,
    to_csv,
    to_json,
)
from karat.retrievers.quality.pipeline import Quality, Ranked
from karat.retrievers.quality.settings import Config, read_config, read_document
from karat.retrievers.quality.traces import append_traces, trace_folder, trace_of
from karat.tables import Corpus, Run

_MOST = 10**9
_BASE = "The base ranking is by a hash of each text: the same everywhere, and without meaning."


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat ab`` was asked for."""

    queries: str
    truth: str
    config_a: str
    config_b: str
    out: str
    csv: str | None = None
    k: str = "10"
    corpus: str | None = None
    run_a: str | None = None
    run_b: str | None = None
    emit_traces: bool = False
    trace_dir: str | None = None
    as_json: bool = False
    quiet: bool = False

    def files(self) -> list[str]:
        """Every input by name."""
        named = [self.queries, self.truth, self.config_a, self.config_b]
        return [*named, *(one for one in (self.corpus, self.run_a, self.run_b) if one is not None)]


@dataclass
class Compared:
    """The report, what there is to say about it, and the traces by the folder they go to."""

    report: AbReport
    outputs: Sequence[Output]
    notes: list[str]
    traces: Mapping[Path, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    verdict: Sequence[str] = ()


def compare_configs(request: Request) -> Compared:
    """Score both configs on the same queries; what is misspelled is refused before any work."""
    heed_interrupts()
    k = _cut(request.k)
    _check_together(request)
    outputs = _outputs(request)
    queries, gold = read_queries(request.queries), read_truth(request.truth)
    notes = about_gold(queries, gold)
    inputs = Inputs(queries, gold, k, request.quiet or request.as_json)
    told = _given(request, inputs) if request.corpus is None else _searched(request, inputs)
    report = AbReport(
        k=k,
        corpus_digest=told.corpus_digest,
        queries_digest=digest_of_bytes(queries.source),
        qrels_digest=digest_of_bytes(gold.source),
        a=told.sides[0],
        b=told.sides[1],
    )
    return Compared(report, outputs, [*told.notes, *notes], told.traces, _verdict(told.scores))


def _verdict(scores: Sequence[Scores]) -> list[str]:
    """Whether B is better than A, in the words of every comparison."""
    from karat.analysis.compare import compare_scores
    from karat.analysis.contenders import contenders_of
    from karat.analysis.verdicts import Rule
    from karat.reports.headlines import headlines

    found = compare_scores(contenders_of(scores, names=["A", "B"]), Rule())
    lines = []
    for one in headlines({"decisions": [decision.document() for decision in found.decisions]}):
        first, *others = one.because
        lines += [f"{one.word}  {first}", *(f"  {reason}" for reason in others)]
    return lines


def publish(compared: Compared, request: Request) -> None:
    """Write the files, append the traces, and say what was done and what was not."""
    _write(compared)
    notes = [*compared.notes]
    for folder, traces in compared.traces.items():
        failed = append_traces(folder, traces)
        notes.extend([] if failed is None else [f"{failed}; the run goes on"])
    for note in notes:
        typer.echo(f"karat: {note}", err=True)
    if request.as_json:
        write_stdout(to_json(compared.report) + b"\n")
    elif all(output.path is not None for output in compared.outputs):
        _show(compared, request)


def _show(compared: Compared, request: Request) -> None:
    also = "" if request.csv is None else f" and CSV to {request.csv}"
    typer.echo(f"Wrote JSON to {request.out}{also}")
    if request.quiet:
        return
    from karat.reports.terminal import say, show_grid, standard_console

    console = standard_console()
    console.print()
    show_grid(macro_grid(compared.report), console)
    for line in compared.verdict:
        say(line, console)
    if request.corpus is not None:
        console.print(_BASE, style="dim", soft_wrap=True)


@dataclass(frozen=True)
class _Told:
    sides: Sequence[Side]
    scores: Sequence[Scores]
    notes: Sequence[str]
    corpus_digest: str = ABSENT
    traces: Mapping[Path, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def _given(request: Request, inputs: Inputs) -> _Told:
    """Both sides from the runs that were given; the configs are on record."""
    sides, both = [], []
    notes = ["runs are given, so the configs are on record and change nothing"]
    pairs = ((request.config_a, request.run_a), (request.config_b, request.run_b))
    for system, (config, path) in zip("AB", pairs, strict=True):
        with _config_of(system):
            document = read_document(config)
        scores = _scored(read_run(path or "", name=system), inputs)
        notes.extend([*about_run(scores, system), *_nothing_found(scores, system)])
        both.append(scores)
        sides.append(side_of(scores, document.path, document.digest))
    return _Told(sides, both, notes)


def _searched(request: Request, inputs: Inputs) -> _Told:
    """Both sides by searching the corpus under each config."""
    configs = [*_configs(request)]
    corpus = _corpus(request.corpus or "")
    sides: list[Side] = []
    both: list[Scores] = []
    notes = [
        f"config {system}: {note}"
        for system, config in zip("AB", configs, strict=True)
        for note in config.notes
    ]
    traces: dict[Path, list[Mapping[str, Any]]] = defaultdict(list)
    for system, config in zip("AB", configs, strict=True):
        with _config_of(system):
            quality = Quality(corpus, config.settings)
        lists = _lists(quality, inputs, system)
        notes.extend(about_lists(quality, lists, inputs, system))
        run = Run.from_dict({query_id: one.item_ids for query_id, one in lists.items()})
        document = config.document
        both.append(_scored(run, inputs))
        notes.extend(_nothing_found(both[-1], system))
        sides.append(side_of(both[-1], document.path, document.digest))
        if request.emit_traces:
            folder = Path(request.trace_dir or trace_folder(config.settings))
            found = _traces(config, lists, inputs)
            traces[folder].extend(found)
            if not found:
                notes.append(f"config {system}: no traces: {why_no_traces(config.settings)}")
    notes.extend(about_items(corpus, inputs))
    written = {place: rows for place, rows in traces.items() if rows}
    return _Told(sides, both, notes, digest_of_bytes(corpus.source), written)


def _configs(request: Request) -> Iterator[Config]:
    for system, path in zip("AB", (request.config_a, request.config_b), strict=True):
        with _config_of(system):
            yield read_config(path)


@contextmanager
def _config_of(system: str) -> Iterator[None]:
    """Say which config is wrong: both may have the same name, in other folders."""
    try:
        yield
    except InputError as error:
        raise InputError(f"config {system}: {error}") from None


def _lists(quality: Quality, inputs: Inputs, system: str) -> dict[str, Ranked]:
    found = {}
    with counting(system, len(inputs.asked), quiet=inputs.quiet) as bar:
        for query_id, text in inputs.asked:
            found[query_id] = quality.rank(text, inputs.k)
            bar.advance(1)
    return found


def _traces(config: Config, lists: Mapping[str, Ranked], inputs: Inputs) -> list[Mapping[str, Any]]:
    told = (
        trace_of(config.settings, text, lists[query_id], os.environ)
        for query_id, text in inputs.asked
    )
    return [trace for trace in told if trace is not None]


def _scored(run: Run, inputs: Inputs) -> Scores:
    """The run under the harness's conventions, in the order in which it ranks its hits."""
    conventions = conventions_of(PROFILE, {"k": inputs.k, "order": run.order})
    measures = parse_measures(PROFILES[PROFILE].measures, conventions=conventions)
    prepared = prepare(inputs.gold, conventions, queries=inputs.queries)
    return score(run, prepared, measures, keep=inputs.k)


def _nothing_found(scores: Scores, system: str) -> list[str]:
    found_none = scores.nothing_found
    return [f"config {system}: {nothing_found(found_none)}"] if found_none else []


def _corpus(path: str) -> Corpus:
    """The items; lines of JSON are what the harness reads, all else is told by its content."""
    return read_corpus(path, format="jsonl" if layout_suffix(path) == ".jsonl" else None)


def _cut(given: str) -> int:
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given) <= _MOST:
        raise UsageError(f"--k is {given!r}; it must be a whole number from 1 to {_MOST:,}")
    return int(given)


def _check_together(request: Request) -> None:
    """Refuse options that contradict each other or would do nothing."""
    runs = [one for one in (request.run_a, request.run_b) if one is not None]
    if request.corpus is not None and runs:
        raise UsageError(
            "--corpus is searched and --runA and --runB are not; give one or the other"
        )
    if request.corpus is None and len(runs) < 2:
        raise UsageError("give --corpus to search it, or both --runA and --runB")
    if request.emit_traces and runs:
        raise UsageError("--emit-traces needs --corpus: runs leave nothing to trace")
    if request.trace_dir is not None and not request.emit_traces:
        raise UsageError("--trace-dir says where traces go; add --emit-traces")
    if request.trace_dir == "":
        raise UsageError("--trace-dir is empty; name a folder")
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")


def _outputs(request: Request) -> list[Output]:
    named = [f"json:{request.out}", *([] if request.csv is None else [f"csv:{request.csv}"])]
    return parse_outputs(named, inputs=request.files(), stdout_taken=request.as_json)


def _write(compared: Compared) -> None:
    rendered = [render(compared.report) for render in (to_json, to_csv)]
    write_whole(
        [
            (output.path, packed(data, output.path))
            for output, data in zip(compared.outputs, rendered, strict=False)
        ]
    )
