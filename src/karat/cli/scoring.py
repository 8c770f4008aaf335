"""From file names to scores: read the inputs, score each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from karat.abreast import abreast, cores
from karat.analysis.segments import By, check_by
from karat.analysis.skipped import PROFILE as STORY
from karat.analysis.skipped import without_blank
from karat.analysis.thresholds import lines_of
from karat.analysis.versions import with_versions
from karat.cli.bounding import WHOLE_LISTS, Bounding
from karat.cli.correcting import Correcting, correcting_of
from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import progress
from karat.cli.scored import Scored
from karat.cli.shelves import Shelf
from karat.cli.sparking import Sparking, sparking_of
from karat.columns import Duplicates, Source
from karat.errors import InputError, NoGoldError, UsageError
from karat.formats import queries_beside, read_gold, read_queries, scan_run
from karat.formats.field_mapping import Fields
from karat.formats.room import VARIABLE, fits, readers
from karat.measures.conventions import PROFILES, Conventions, conventions_of, setting_names
from karat.measures.names import Measure, parse_measures
from karat.measures.scores import Scores, prepare
from karat.measures.scores import score as score_run
from karat.reports.figures import several
from karat.reports.outputs import Form, check_reading
from karat.tables import Blocks, Corpus, Gold, Queries

if TYPE_CHECKING:
    from karat.analysis.bounds import Labelled
    from karat.analysis.gates import Gate
    from karat.analysis.staged import Staged
    from karat.measures.prepare import Prepared
    from karat.retrievers.corpus_index import CorpusIndex


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command that scores runs was asked for; ``forms`` are those of its outputs.

    ``index_in`` is the folder that keeps an index of the corpus, where one is needed.
    ``bounds`` are told where that is quick, unless asked for or declined.
    """

    runs: Sequence[str]
    gold: str
    measures: Sequence[str] | None = None
    primary: str | None = None
    profile: str = "karat"
    settings: Sequence[str] = ()
    by: Sequence[str] = ()
    queries: str | None = None
    corpus: str | None = None
    gates: str | None = None
    judged: str | None = None
    human: Sequence[str] = ()
    bounds: bool | None = None
    strict_bounds: bool = False
    seed: str | None = None
    strict: bool = False
    run_format: str | None = None
    gold_format: str | None = None
    fields: Fields = field(default_factory=Fields)
    engine: str = "local"
    quiet: bool = False
    forms: Sequence[Form] = ()
    index_in: Path | None = None

    def files(self) -> list[str]:
        """Every input by name."""
        named = [*self.runs, self.gold, self.queries, self.corpus, self.gates, self.judged]
        named += self.human
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
    not_compared: frozenset[Measure] = frozenset()
    labelled: Labelled | None = None
    with_labels: Prepared | None = None
    correcting: Correcting | None = None
    index: CorpusIndex | None = None
    sparking: Sparking | None = None
    fields: Fields = field(default_factory=Fields)


def ready(request: Request) -> Ready:
    """Read the gold and what goes with it; what is misspelled is refused before that."""
    heed_interrupts()
    conventions = conventions_of(request.profile, _settings(request))
    check_reading(request.forms, request.profile)
    own = PROFILES[request.profile].measures
    primary = [] if request.primary is None else [request.primary]
    measures = parse_measures([*(request.measures or own), *primary], conventions=conventions)
    by = tuple(By.parse(one) for one in request.by)
    if request.files().count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    gates, left_out, source = _gates(request, conventions)
    sparking = sparking_of(request)
    gold = _gold(request, sparking, conventions.duplicates)
    queries = _queries(request)
    if request.profile == STORY and queries is not None:
        gold = _of_asked(gold, queries)
    shelf = Shelf(request.index_in, quiet=request.quiet, fields=request.fields)
    named = [*measures, *_measures_in(gates)]
    corpus = None if request.corpus is None else shelf.read(request.corpus, named)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    if sparking is None:
        queries = with_versions(queries, gold, corpus, by)
    check_by(queries, by)
    for_gates = [] if not gates else _measures_for(gates, queries, prepared.query_ids)
    also = for_gates
    if any(form.profile is not None for form in request.forms):
        also = [*also, *parse_measures(own, conventions=conventions)]
    also = [measure for measure in dict.fromkeys(also) if measure not in measures]
    labelled, with_labels = _labelled(request, gold, prepared, queries, corpus)
    if with_labels is not None:
        prepared = replace(prepared, top_grade=float(with_labels.grade.max(initial=0.0)))
    correcting = correcting_of(request.judged, request.human, measures)
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
        not_compared=frozenset(also),
        labelled=labelled,
        with_labels=with_labels,
        correcting=correcting,
        index=shelf.index,
        sparking=sparking,
        fields=request.fields,
    )


def _gold(request: Request, sparking: Sparking | None, duplicates: Duplicates) -> Gold:
    if sparking is not None:
        return sparking.gold(request.gold, duplicates=duplicates, format=request.gold_format)
    return read_the_gold(
        request.gold,
        in_queries=request.gold == request.queries,
        duplicates=duplicates,
        form=request.gold_format,
        fields=request.fields,
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
    keep = max(keep, 0 if read.correcting is None else read.correcting.depth)
    if read.sparking is not None:
        return read.sparking.scored(request, read, keep)
    bounding = Bounding.of(
        request.runs, read.prepared, bounds=request.bounds, strict=request.strict_bounds
    )
    one = partial(_score_one, request, read, bounding, keep=keep, in_full=in_full)
    names = request.runs
    # What waits for standard input is to hear of Ctrl-C, which only the main thread does.
    most = 1 if "-" in names else min(len(names), cores())
    found: list[_Found] = []
    with progress(names, quiet=request.quiet) as begin, readers(most) as at_once:
        for each in abreast(one, names, at_once=at_once, begin=begin):
            bounding.take(each.whole)
            found.append(replace(each, whole=None))
    request.fields.check()
    return Scored(
        [each.scores for each in found],
        read,
        tuple(each.staged for each in found if each.staged is not None),
        tuple(each.labelled for each in found if each.labelled is not None),
        open=bounding.opened(read.prepared),
        strict_bounds=request.strict_bounds,
        left_out=bounding.left_out,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found of one run; ``whole`` are its scores with all of its lists."""

    scores: Scores
    staged: Staged | None = None
    labelled: Scores | None = None
    whole: Scores | None = None


def _score_one(
    request: Request, read: Ready, bounding: Bounding, name: str, *, keep: int, in_full: bool
) -> _Found:
    run = scan_run(name, format=request.run_format, strict=request.strict, fields=request.fields)
    labelled = staged = whole = None
    if read.with_labels is not None:
        labelled = _score_with_labels(run, read.with_labels, read.measures)
    wanted = (run, read.prepared, read.measures)
    if in_full:
        staged = _score_in_full(*wanted, lenient=read.lenient, keep=keep)
        scores = staged.final
        if bounding.wanted:
            whole = bounding.whole(run, scores, read.prepared)
    elif bounding.wanted:
        whole = score_run(*wanted, lenient=read.lenient, keep=WHOLE_LISTS)
        scores = bounding.cut(whole, keep)
    else:
        scores = score_run(*wanted, lenient=read.lenient, keep=keep)
    return _Found(scores, staged, labelled, whole)


def _score_in_full(
    run: Blocks,
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Sequence[Measure],
    keep: int,
) -> Staged:
    from karat.analysis.staged import KEEP, Staged, score_stages

    keep = max(keep, KEEP, lines_of(gold.conventions.profile).far)
    if run.staged and not fits(run.source):
        told = "only its final lists are looked at, not its calls and earlier stages"
        where = f"{run.source.name} takes more memory than {VARIABLE} allows"
        typer.echo(f"karat: {where}: {told}", err=True)
        return Staged(score_run(run, gold, measures, lenient=lenient, keep=keep), gold)
    return score_stages(run, gold, measures, lenient=lenient, keep=keep, of_stages=[])


def _score_with_labels(run: Blocks, gold: Prepared, measures: Sequence[Measure]) -> Scores:
    from karat.analysis.bounds import judgeable

    wanted = judgeable(measures)
    if not wanted:
        raise UsageError("--judged is for P and nDCG; name one of them with -m, such as P@5")
    return score_run(run, gold, wanted, derived=True)


def _depth(forms: Sequence[Form], gold: Prepared) -> int:
    """How many of the top items of each query the outputs need."""
    needed = {form.lists for form in forms}
    if "all" in needed:
        return WHOLE_LISTS
    return int(gold.own_k.max(initial=0)) if "k" in needed else 0


def read_the_gold(
    name: str,
    *,
    in_queries: bool,
    duplicates: Duplicates,
    form: str | None = None,
    fields: Fields,
) -> Gold:
    """The gold; a file of queries that holds none lacks it, whatever else can be read there."""
    if in_queries:
        fields = fields.together()
    try:
        return read_gold(name, format=form, duplicates=duplicates, fields=fields)
    except NoGoldError:
        raise
    except InputError:
        if not in_queries or not _holds_queries(name, fields):
            raise
    raise InputError(
        "holds queries without gold; name the judgments: gold in karat.yaml, or --gold FILE",
        where=Path(name).name,
    )


def _holds_queries(name: str, fields: Fields) -> bool:
    if not Path(name).exists():
        return False
    try:
        read_queries(name, fields=fields)
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


def _measures_in(gates: Sequence[Gate]) -> list[Measure]:
    if not gates:
        return []
    from karat.analysis.gates import measures_of

    return measures_of(gates)


def _gates(
    request: Request, conventions: Conventions
) -> tuple[list[Gate], tuple[str, ...], Source | None]:
    if request.gates is None:
        return [], (), None
    from karat.analysis.gate_files import read_gate_file

    file = read_gate_file(request.gates, conventions=conventions)
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
        one_file = request.gold == request.queries
        fields = request.fields.together() if one_file else request.fields
        return read_queries(request.queries, fields=fields)
    # A pipe can be read once only, and the gold has been read from it.
    folder = Path(request.gold).is_dir() and not _is_for_spark(request)
    again = folder or Path(request.gold).is_file()
    if not again:
        return None
    return queries_beside(request.gold, format=request.gold_format, fields=request.fields)


def _is_for_spark(request: Request) -> bool:
    """Whether a folder holds files of Spark's, and is not one of queries with their gold."""
    return request.engine != "local" and not (Path(request.gold) / "qrels").is_dir()


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
