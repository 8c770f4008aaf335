"""From file names to a report: read the inputs, score each run, gather the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from karat.analysis.segments import By, check_by
from karat.analysis.skipped import PROFILE as STORY
from karat.analysis.skipped import without_blank
from karat.analysis.versions import with_versions
from karat.cli.doc_gold import refuse_documents
from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import progress
from karat.columns import Duplicates, Source
from karat.errors import InputError, UsageError
from karat.formats import queries_beside, read_corpus, read_gold, read_queries, scan_run
from karat.measures.conventions import PROFILES, conventions_of, setting_names
from karat.measures.names import Measure, parse_measures
from karat.measures.scores import Scores, prepare
from karat.measures.scores import score as score_run
from karat.reports.document import Report, System, build_report
from karat.reports.figures import several
from karat.reports.outputs import Form, check_reading
from karat.tables import Blocks, Corpus, Gold, Queries

if TYPE_CHECKING:
    from karat.analysis.bounds import Labelled
    from karat.analysis.gates import Gate
    from karat.analysis.staged import Staged
    from karat.measures.prepare import Prepared


_WHOLE_LISTS = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command that scores runs was asked for; ``forms`` are those of its outputs."""

    runs: Sequence[str]
    gold: str
    measures: Sequence[str] | None = None
    profile: str = "karat"
    settings: Sequence[str] = ()
    by: Sequence[str] = ()
    queries: str | None = None
    corpus: str | None = None
    gates: str | None = None
    judged: str | None = None
    seed: str | None = None
    strict: bool = False
    run_format: str | None = None
    gold_format: str | None = None
    quiet: bool = False
    forms: Sequence[Form] = ()

    def files(self) -> list[str]:
        """Every input by name."""
        named = [*self.runs, self.gold, self.queries, self.corpus, self.gates, self.judged]
        return [name for name in named if name is not None]


@dataclass(frozen=True, eq=False)
class Ready:
    """All that scoring needs beside the runs, read and checked."""

    gold: Gold
    queries: Queries | None
    corpus: Corpus | None
    by: tuple[By, ...]
    gates: tuple[Gate, ...]
    left_out: tuple[str, ...]
    gates_file: Source | None
    prepared: Prepared
    measures: list[Measure]
    lenient: list[Measure]
    for_gates: frozenset[Measure] = frozenset()
    labelled: Labelled | None = None
    with_labels: Prepared | None = None


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of every run, and what they were made with."""

    scores: list[Scores]
    given: Ready
    staged: tuple[Staged, ...] = ()
    labelled: tuple[Scores, ...] = ()

    def report(self) -> Report:
        """The report on all systems, with the segments asked for."""
        given = self.given
        report = build_report(
            self.scores, gold=given.gold, queries=given.queries, corpus=given.corpus, by=given.by
        )
        systems = self._bounded(self._in_full(report.systems))
        return replace(report, gates=given.gates_file, systems=systems, labelled=given.labelled)

    def _bounded(self, systems: tuple[System, ...]) -> tuple[System, ...]:
        """The systems with what a judge's labels change; a stored baseline has none."""
        if not self.labelled:
            return systems
        from karat.analysis.bounds import bounds_of

        first = len(systems) - len(self.labelled)
        bounded = [
            replace(system, bounds=bounds_of(system.summaries, scores))
            for system, scores in zip(systems[first:], self.labelled, strict=True)
        ]
        return (*systems[:first], *bounded)

    def _in_full(self, systems: tuple[System, ...]) -> tuple[System, ...]:
        """The systems with what lies behind their figures; a stored baseline stands before them."""
        if not self.staged:
            return systems
        from karat.analysis.behind import behind

        first = len(systems) - len(self.staged)
        full = [
            replace(system, behind=behind(staged, self.given.queries, self.given.by))
            for system, staged in zip(systems[first:], self.staged, strict=True)
        ]
        return (*systems[:first], *full)

    def gated(self, report: Report, *, skip: Collection[str] = ()) -> Report:
        """The report with every run but some held against the gates."""
        given = self.given
        if not given.gates:
            return report
        from karat.analysis.gates import judge

        # A stored baseline stands before the runs, which may have measures that it lacks.
        names = [system.name for system in report.systems][-len(self.scores) :]
        gatings = [
            judge(given.gates, scores, given.queries, system=name, left_out=given.left_out)
            for name, scores in zip(names, self.scores, strict=True)
            if name not in skip
        ]
        return replace(report, gatings=tuple(gatings))


def ready(request: Request, reader: Callable[[str], Corpus] = read_corpus) -> Ready:
    """Read the gold and what goes with it; what is misspelled is refused before that.

    ``reader`` reads the corpus, where it may have been kept in another form.
    """
    heed_interrupts()
    conventions = conventions_of(request.profile, _settings(request))
    check_reading(request.forms, request.profile)
    own = PROFILES[request.profile].measures
    measures = parse_measures(request.measures or own, rel=conventions.rel)
    by = tuple(By.parse(one) for one in request.by)
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    gates, left_out, source = _gates(request, conventions.rel)
    gold = read_the_gold(
        request.gold,
        in_queries=request.gold == request.queries,
        duplicates=conventions.duplicates,
        form=request.gold_format,
    )
    queries = _queries(request)
    if request.profile == STORY and queries is not None:
        gold = _of_asked(gold, queries)
    corpus = None if request.corpus is None else reader(request.corpus)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    queries = with_versions(queries, gold, corpus, by)
    check_by(queries, by)
    for_gates = [] if not gates else _measures_for(gates, queries, prepared.query_ids)
    also = for_gates
    if any(form.profile is not None for form in request.forms):
        also = [*also, *parse_measures(own, rel=conventions.rel)]
    also = [measure for measure in dict.fromkeys(also) if measure not in measures]
    labelled, with_labels = _labelled(request, gold, prepared, queries, corpus)
    return Ready(
        gold=gold,
        queries=queries,
        corpus=corpus,
        by=by,
        gates=tuple(gates),
        left_out=left_out,
        gates_file=source,
        prepared=prepared,
        measures=[*measures, *also],
        lenient=also if request.measures else [*measures, *also],
        for_gates=frozenset(for_gates).difference(measures),
        labelled=labelled,
        with_labels=with_labels,
    )


def _of_asked(gold: Gold, queries: Queries) -> Gold:
    """The gold of a story's queries; one without text asks nothing, whatever its gold."""
    left, blank = without_blank(gold, queries)
    if blank:
        told = several(blank, "query", "queries")
        typer.echo(f"karat: {told} without text asked nothing: gold left out", err=True)
    return left


def _labelled(
    request: Request,
    gold: Gold,
    prepared: Prepared,
    queries: Queries | None,
    corpus: Corpus | None,
) -> tuple[Labelled | None, Prepared | None]:
    """The gold with a judge's labels, where there are some."""
    if request.judged is None:
        return None, None
    from karat.analysis.bounds import with_labels
    from karat.formats.detect import detect_format
    from karat.formats.files import open_input
    from karat.formats.labels import count_failed

    if request.judged == "-":
        raise UsageError("--judged is read twice, so it cannot be standard input; name a file")
    labels = read_gold(request.judged)
    graded = detect_format(request.judged, "gold").name != "labels"
    failed = 0 if graded else count_failed(open_input(request.judged))
    conventions = prepared.conventions
    both = with_labels(gold, labels, conventions, asked=prepared.query_ids)
    if not both.added and not both.known:
        raise InputError(
            "holds no label of a query that has gold; were these queries judged?",
            where=request.judged,
        )
    told = replace(both, failed=failed)
    return told, prepare(both.gold, conventions, queries=queries, corpus=corpus)


def score(
    request: Request, *, keep: int = 0, given: Ready | None = None, in_full: bool = False
) -> Scored:
    """Score every run; ``in_full`` also what lies behind the figures: curve, failures, latency."""
    read = given or ready(request)
    keep = max(keep, _depth(request.forms, read.prepared))
    scores: list[Scores] = []
    staged: list[Staged] = []
    labelled: list[Scores] = []
    with progress(request.runs, quiet=request.quiet) as begin:
        for name in request.runs:
            begin(name)
            run = scan_run(name, format=request.run_format, strict=request.strict)
            if read.with_labels is not None:
                labelled.append(_score_with_labels(run, read.with_labels, read.measures))
            wanted = (run, read.prepared, read.measures)
            if not in_full:
                scores.append(score_run(*wanted, lenient=read.lenient, keep=keep))
            else:
                staged.append(_score_in_full(*wanted, lenient=read.lenient, keep=keep))
                scores.append(staged[-1].final)
            refuse_documents(run, scores[-1], read.gold, read.queries, read.corpus)
    return Scored(scores, read, tuple(staged), tuple(labelled))


def _score_in_full(
    run: Blocks,
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Sequence[Measure],
    keep: int,
) -> Staged:
    from karat.analysis.staged import KEEP, score_stages

    return score_stages(run, gold, measures, lenient=lenient, keep=max(keep, KEEP), of_stages=[])


def _score_with_labels(run: Blocks, gold: Prepared, measures: Sequence[Measure]) -> Scores:
    from karat.analysis.bounds import judgeable

    wanted = judgeable(measures)
    if not wanted:
        raise UsageError("--judged is for P and nDCG; name one of them with -m, such as P@5")
    return score_run(run, gold, wanted)


def _depth(forms: Sequence[Form], gold: Prepared) -> int:
    """How many of the top items of each query the outputs need."""
    needed = {form.lists for form in forms}
    if "all" in needed:
        return _WHOLE_LISTS
    return int(gold.own_k.max(initial=0)) if "k" in needed else 0


def read_the_gold(
    name: str, *, in_queries: bool, duplicates: Duplicates, form: str | None = None
) -> Gold:
    """The gold; a file of queries that holds none lacks it, whatever else can be read there."""
    try:
        return read_gold(name, format=form, duplicates=duplicates)
    except InputError:
        if not in_queries or not _holds_queries(name):
            raise
    raise InputError(
        "holds queries without gold; name the judgments: gold in karat.yaml, or --gold FILE",
        where=Path(name).name,
    )


def _holds_queries(name: str) -> bool:
    if not Path(name).exists():
        return False
    try:
        read_queries(name)
    except InputError:
        return False
    return True


def _measures_for(
    gates: Sequence[Gate], queries: Queries | None, query_ids: Sequence[str]
) -> list[Measure]:
    """What the gates need scored; a segment that no query is in is refused first."""
    from karat.analysis.gates import check_segments, measures_of

    check_segments(gates, queries, query_ids)
    return measures_of(gates)


def _gates(request: Request, rel: float) -> tuple[list[Gate], tuple[str, ...], Source | None]:
    if request.gates is None:
        return [], (), None
    from karat.analysis.gate_files import read_gate_file

    file = read_gate_file(request.gates, rel=rel)
    return file.gates, file.left_out, file.source


def _settings(request: Request) -> dict[str, str]:
    settings = parse_settings(request.settings)
    if request.seed is None:
        return settings
    if settings.get("seed", request.seed) != request.seed:
        raise UsageError("--seed and --set seed=… contradict each other")
    return settings | {"seed": request.seed}


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
