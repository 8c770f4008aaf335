"""Evaluation: the inputs of a measurement, read and checked once, and the methods on them.

Files are read in ``inputs``; analyses and reports are built on an Evaluation elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from karat.data.columns import Source
from karat.data.tables import Blocks, Gold, Queries, Run
from karat.errors import UsageError
from karat.evaluation.inputs import (
    STORY,
    corpus_of,
    gold_of,
    is_file,
    is_spark,
    open_run,
    queries_of,
    without_blank,
)
from karat.evaluation.plain_files import PlainGold, read_plain_gold, score_plain
from karat.evaluation.segments import By, check_by, with_versions
from karat.evaluation.systems import DEPTH, WHOLE_LISTS, ComparedSystem, compared_systems
from karat.evaluation.verdict import Rule, check_boundable, rule_from
from karat.formats.blocks import (
    MEMORY_VARIABLE,
    StreamedRun,
    concurrent_readers,
    fits_in_memory,
)
from karat.formats.field_mapping import Fields, FieldsLike
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.names import Measure, parse_measures
from karat.measure.prepare import Prepared, prepare
from karat.measure.score_builder import score as score_run
from karat.measure.scores import Scores
from karat.pages.formatting import plural
from karat.parallel import cores, parallel_map

if TYPE_CHECKING:
    from karat.evaluation.bounds import ScoreRanges
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.gate_files import Gates
    from karat.evaluation.gates import Gate, Gating
    from karat.evaluation.judged_labels import Labelled
    from karat.evaluation.stages import Staged
    from karat.spark.engine import SparkEngine

# Runs of more hits, or files of more bytes, have ranges only if somebody asks for them.
MOST_HITS, _MOST_RANGE_BYTES = 200_000, 20_000_000
_TOO_MANY = "bounds are reported for runs of up to 200,000 hits; --bounds reports them here too"
# Called with the names of runs; gives what is called with each name as its turn comes.
Progress = Callable[[Sequence[str]], AbstractContextManager[Callable[[str], None]]]


class Evaluation(AbstractContextManager["Evaluation"]):
    """Gold, queries and corpus under one profile, read and checked once.

    Each input is the name of a file, a mapping, a Polars, pandas or Arrow frame, or the table
    itself; gold and runs may be DataFrames of Spark, and a run may be a function from a query's
    text and k to a ranked list. Without ``measures`` those of the profile
    are scored. ``settings`` changes conventions, as ``--set`` does. ``fields`` says which columns
    have other names than karat's: ``{"gold": "gold_ids"}``. ``by`` names the segments.

    ``judged`` is a file of a judge's labels. ``more_measures`` are scored but not compared.
    ``index_cache`` is the folder that keeps an index of the corpus, where single items are looked
    up. ``engine`` is ``local``, ``spark`` or ``spark=MASTER``. ``notify`` is called with messages,
    ``progress`` with the names of the runs that are scored.

    >>> evaluation = Evaluation({"q1": {"a": 2, "b": 1}}, measures=["nDCG@5", "R@5"])
    >>> means = evaluation.score({"q1": ["b", "x", "a"]}).means()
    >>> round(means["nDCG@5"], 3), means["R@5"]
    (0.76, 1.0)
    """

    def __init__(
        self,
        gold: Any,
        *,
        queries: Any = None,
        corpus: Any = None,
        profile: str = "karat",
        settings: Mapping[str, Any] | None = None,
        measures: str | Sequence[str | Measure] | None = None,
        primary: str | None = None,
        by: Iterable[str | By] = (),
        gates: Gates | None = None,
        judged: str | None = None,
        fields: Fields | FieldsLike = None,
        seed: int | str | None = None,
        engine: str | SparkEngine = "local",
        strict: bool = False,
        run_format: str | None = None,
        gold_format: str | None = None,
        more_measures: Sequence[str] = (),
        index_cache: Path | None = None,
        notify: Callable[[str], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.fields = Fields.of(fields)
        self.notify = notify or (lambda message: None)
        self.progress = progress or _no_progress
        self._run_format, self._strict = run_format, strict
        if seed is not None:
            settings = {"seed": seed, **(settings or {})}
            if str(settings["seed"]) != str(seed):
                raise UsageError("--seed and --set seed=… contradict each other")
        # Misspelled names are refused before any file is read.
        self._conventions = conventions_of(profile, settings)
        self.by = tuple(map(By.parse, by))
        inputs = (gold, queries, corpus, gates, judged)
        if [str(name) for name in inputs if is_file(name)].count("-") > 1:
            raise UsageError("only one input can be standard input (-)")
        self._choose_measures(measures, primary, gates, more_measures)
        self.engine = None
        if engine != "local" or is_spark(gold):
            self.engine = self._engine(engine, gold, judged=judged)
        self._plain = self._plain_gold(gold, (queries, corpus, judged, gold_format))
        self._read_gold = partial(self._read, gold, queries, gold_format)
        self.queries: Queries | None = None
        if self._plain is None:
            self.gold, self.queries = self._read_gold()
        self.corpus, self.index = None, None
        if corpus is not None:
            self.corpus, self.index = corpus_of(
                corpus,
                self.measures,
                fields=self.fields,
                index_cache=index_cache,
                notify=self.notify,
            )
        self.prepared = self._prepare(self.gold) if self._plain is None else self._plain.prepared
        self._check_segments()
        self.judged = judged
        self.labelled: Labelled | None = None
        self.with_labels: Prepared | None = None
        if judged is not None:
            from karat.evaluation.judged_labels import labels_of

            self.labelled = labels_of(judged, self.gold, self.prepared)
            self.with_labels = self._prepare(self.labelled.gold)
            top = float(self.with_labels.grade.max(initial=0.0))
            self.prepared = replace(self.prepared, top_grade=top)

    def _check_segments(self) -> None:
        """Refuse columns that the queries lack, as segments and in gates."""
        if self.by:
            if self.engine is None:
                self.queries = with_versions(self.queries, self.gold, self.corpus, self.by)
            check_by(self.queries, self.by)
        if self.gates:
            from karat.evaluation.gates import check_segments

            check_segments(self.gates, self.queries, self.prepared.query_ids)

    def _choose_measures(
        self,
        measures: str | Sequence[str | Measure] | None,
        primary: str | None,
        gates: Gates | None,
        more: Sequence[str],
    ) -> None:
        """Set the measures to score, the ones not compared, and the gates."""
        conventions = self._conventions
        compared: list[Measure] = []
        if measures != () or gates is None:
            names = PROFILES[conventions.profile].measures if measures is None else measures
            compared = parse_measures(names, conventions=conventions)
        if primary is not None:
            compared += parse_measures([primary], conventions=conventions)
        self.gates: tuple[Gate, ...] = ()
        self.gates_left_out: tuple[str, ...] = ()
        self.gates_file: Source | None = None
        if gates is not None:
            from karat.evaluation.gate_files import gates_of

            read = gates_of(gates, conventions)
            self.gates, self.gates_left_out = tuple(read.gates), read.left_out
            self.gates_file = read.source
        extra = [gate.measure for gate in self.gates]
        if more:
            extra += parse_measures(list(more), conventions=conventions)
        self.measures = list(dict.fromkeys([*compared, *extra]))
        self.not_compared = frozenset(extra).difference(compared)
        # A default measure may lack its inputs; a named one must not.
        self.lenient = list(self.measures if measures is None else self.not_compared)

    def _read(
        self, gold: Any, queries: Any, gold_format: str | None
    ) -> tuple[Gold, Queries | None]:
        """Read the gold and the queries."""
        duplicates, engine = self._conventions.duplicates, self.engine
        table = gold
        if engine is None or not (is_file(gold) or is_spark(gold)):
            table = gold_of(
                gold, queries, duplicates=duplicates, format=gold_format, fields=self.fields
            )
        if engine is not None:
            table = engine.read_gold(table, duplicates=duplicates, format=gold_format)
        query_table = queries_of(
            queries,
            gold,
            gold_format=gold_format,
            fields=self.fields,
            for_spark=engine is not None,
        )
        if self._conventions.profile != STORY or query_table is None:
            return table, query_table
        table, blank = without_blank(table, query_table)
        if blank:
            many = plural(blank, "query", "queries")
            self.notify(f"karat: gold of {many} without text is left out")
        return table, query_table

    def _plain_gold(self, gold: Any, others: Iterable[Any]) -> PlainGold | None:
        """Return the gold if it is a plain file, and the only input beside the runs."""
        alone = all(value is None for value in others) and not self.fields and self.engine is None
        if not alone or not is_file(gold) or str(gold) == "-":
            return None
        if self._conventions.profile == STORY:
            return None
        return read_plain_gold(gold, self._conventions)

    @cached_property
    def gold(self) -> Gold:
        """The judgments."""
        return self._read_gold()[0]

    def __exit__(self, *_: object) -> None:
        """End the session of Spark, if the evaluation started one."""
        if self.engine is not None:
            self.engine.close()

    def score(self, run: Any, *, name: str | None = None, keep: int = DEPTH) -> Scores:
        """Score one run; raises InputError if its ids do not fit the gold.

        ``keep`` is how many of the top items of each query the scores keep, for comparing lists.
        The scores also keep the run, so that analyses can read it.
        """
        if callable(run) and not hasattr(run, "blocks"):
            run = self.open(run)
        scores = self.score_runs([run], keep=keep).scores[0]
        # Standard input cannot be read again.
        again = None if is_file(run) and str(run) == "-" else run
        return replace(scores, run=again, system=scores.system if name is None else name)

    def stages(
        self,
        run: Any,
        measures: Sequence[Measure] | None = None,
        *,
        keep: int,
        of_stages: Sequence[Measure] | None = None,
    ) -> Staged:
        """Score a run's final lists and those of every earlier stage that its log holds.

        By ``measures``, else by those of the evaluation; earlier stages by ``of_stages``, if given.
        """
        from karat.evaluation.stages import score_stages

        return score_stages(
            self.open(run),
            self.prepared,
            self.measures if measures is None else measures,
            lenient=self.lenient if measures is None else measures,
            keep=keep,
            of_stages=of_stages,
        )

    def score_runs(
        self,
        runs: Sequence[Any],
        *,
        keep: int = 0,
        stages: bool = False,
        bounds: bool | None = False,
        strict_bounds: bool = False,
    ) -> ScoredRuns:
        """Score several runs, as many at once as the machine allows.

        ``stages`` also looks at calls and earlier stages. ``bounds`` adds the ranges of measures
        over all judgments of unjudged items; None adds them if the runs are small.
        ``strict_bounds`` decides only what holds in the whole ranges.
        """
        if self.engine is not None or any(map(is_spark, runs)):
            # One at a time: each uses the whole engine.
            if bounds or strict_bounds:
                raise _needs_lists("--bounds" if bounds else "--strict-bounds")
            scores = [self._score_with_engine(run, keep) for run in runs]
            left_out = None if bounds is False else _ENGINE_WITHOUT_RANGES
            return ScoredRuns(self, scores, why_no_ranges=left_out)
        if strict_bounds:
            if bounds is False:
                raise UsageError("--strict-bounds decides by bounds; leave --no-bounds out")
            bounds = True
        if self._conventions.level != "item" and bounds is None:
            bounds = False
        # Only the main thread hears of Ctrl-C while standard input is awaited.
        alone = len(runs) == 1 or "-" in [run for run in runs if is_file(run)]
        most = 1 if alone else min(len(runs), cores())
        names = [str(run) if is_file(run) else f"run {at}" for at, run in enumerate(runs, 1)]
        how: dict[str, Any] = {"stages": stages, "bounds": bounds}
        with self.progress(names) as begin, concurrent_readers(most) as at_once:
            results = list(
                parallel_map(
                    lambda named: self._score_run(named[1], keep, **how),
                    list(zip(names, runs, strict=True)),
                    at_once=at_once,
                    begin=lambda named: begin(named[0]),
                )
            )
        self.fields.check()
        ranges = tuple(result.ranges for result in results)
        return ScoredRuns(
            self,
            [result.scores for result in results],
            tuple(result.staged for result in results if result.staged is not None),
            tuple(result.labelled for result in results if result.labelled is not None),
            ranges=ranges,
            strict_bounds=strict_bounds,
            why_no_ranges=_TOO_MANY if bounds is None and None in ranges else None,
        )

    def compare(
        self,
        *systems: Any,
        rule: Rule | None = None,
        names: Sequence[str] | None = None,
        replicates: bool = False,
        bounds: bool = False,
        strict_bounds: bool = False,
        **decided_by: Any,
    ) -> Comparisons:
        """Compare systems with the first one, query by query.

        Takes scores of this evaluation, or runs. The decision follows a ``Rule``, or its parts by
        name: ``primary``, ``margin``, ``pairs="all"`` … ``bounds`` adds what judging the unjudged
        items could change, which needs the runs themselves.
        """
        rule = rule_from(rule, decided_by)
        ranged = bounds or strict_bounds
        if ranged:
            check_boundable(rule, replicates=replicates)
        scores = [system for system in systems if isinstance(system, Scores)]
        if scores and len(scores) < len(systems):
            raise UsageError(MIXTURE)
        if scores and ranged:
            raise UsageError(NO_LISTS)
        if scores:
            scored = ScoredRuns(self, scores)
        else:
            scored = self.score_runs(
                systems, keep=DEPTH, bounds=ranged, strict_bounds=strict_bounds
            )
        compared = compared_systems(scored.compared(), replicates=replicates, names=names)
        return scored.compare(rule, compared)

    def gate(
        self, scores: Scores, gates: Gates | None = None, *, system: str | None = None
    ) -> Gating:
        """Compare the scores of a system with gates; without any, with the evaluation's own."""
        from karat.evaluation.gates import judge

        to_judge, left_out = self.gates, self.gates_left_out
        if gates is not None:
            from karat.evaluation.gate_files import gates_of

            read = gates_of(gates, self._conventions)
            to_judge, left_out = tuple(read.gates), read.left_out
        name = system or scores.system
        return judge(to_judge, scores, self.queries, system=name, left_out=left_out)

    def open(self, run: Any) -> Run | Blocks:
        """Open a run, or the run of scores; a function is first called for every query."""
        if isinstance(run, Scores):
            if run.run is None:
                raise UsageError(f"the scores of {run.system} have no run to read; give the run")
            opened: Any = self.open(run.run)
            renamed: Run | Blocks = replace(opened, name=run.system)
            return renamed
        if callable(run) and not hasattr(run, "blocks"):
            return self._ask(run)
        return open_run(run, format=self._run_format, strict=self._strict, fields=self.fields)

    def _ask(self, system: Callable[..., Any]) -> Run:
        """Return the run of a function from a query's text and k to a ranked list."""
        if self.queries is None:
            raise UsageError("a function needs the queries' texts; give queries=")
        from tempfile import TemporaryDirectory

        from karat.formats.readers import read_run
        from karat.retrieve.search import refuse_all_failed, search

        name = getattr(system, "__name__", "run").strip("<>")
        with TemporaryDirectory() as folder:
            logs = str(Path(folder) / "{system}.jsonl")
            results = search({name: system}, self.queries, self.corpus, logs=logs, folder=folder)
            refuse_all_failed(results)
            return read_run(results[0].path, name=name)

    def _engine(self, engine: str | SparkEngine, gold: Any, *, judged: str | None) -> SparkEngine:
        """Return the engine that a name or gold of Spark asks for."""
        if not isinstance(engine, str):
            return engine
        if engine == "local":
            from karat.spark.engine import SparkEngine

            return SparkEngine(gold.sparkSession, owned=False)
        name, equals, master = engine.partition("=")
        if name != "spark" or (equals and not master.strip()):
            raise UsageError(
                f"--engine {engine!r} is not known; use local, spark or spark=MASTER, such "
                "as spark=local[4] or spark=spark://host:7077"
            )
        if judged is not None:
            raise _needs_lists("--judged")
        if self._conventions.profile == STORY:
            raise _needs_lists("--profile story")
        if self.fields:
            raise UsageError(
                "--field is not known to Spark; rename the columns, or use --engine local"
            )
        from karat.spark.session import check_libraries

        check_libraries()
        from karat.spark.engine import start

        return start(master or None, progress=self.progress is not _no_progress)

    def _prepare(self, gold: Gold) -> Prepared:
        return prepare(gold, self._conventions, queries=self.queries, corpus=self.corpus)

    def _score_run(self, run: Any, keep: int, *, stages: bool, bounds: bool | None) -> _ScoredRun:
        """Score one run; ``bounds`` is None for ranges only where the run is small."""
        opened = self.open(run)
        labelled = staged = ranges = None
        if self.with_labels is not None:
            from karat.evaluation.judged_labels import score_with_labels

            labelled = score_with_labels(opened, self.with_labels, self.measures)
        if bounds is None and is_file(run) and Path(run).is_file():
            bounds = None if Path(run).stat().st_size <= _MOST_RANGE_BYTES else False
        ranged = bounds is not False
        if stages:
            staged = self._score_stages(opened, keep)
            scores, lists = staged.final, None
            if ranged and keep:
                lists = score_run(opened, self.prepared, (), keep=WHOLE_LISTS, derived=True).lists
        else:
            # The range of a difference needs the items of both systems by name.
            depth = WHOLE_LISTS if ranged and keep else keep
            scores = self._score_lists(opened, depth)
            lists = scores.lists
            if ranged and lists is not None:
                scores = replace(scores, lists=lists.filter(pl.col("rank") <= keep))
        small = scores.trace is not None and scores.trace.ranked.returned.sum() <= MOST_HITS
        if ranged and (bounds or small):
            from karat.evaluation.bounds import ranges_of

            ranges = ranges_of(replace(scores, lists=lists), self.prepared)
        return _ScoredRun(scores, staged, labelled, ranges)

    def _score_lists(self, run: Run | Blocks, keep: int) -> Scores:
        """Score the final lists of a run, plain files of text without Polars."""
        if self._plain is not None and isinstance(run, StreamedRun) and not keep:
            scores = score_plain(run, self._plain, self.measures, self.lenient)
            if scores is not None:
                return scores
        return score_run(run, self.prepared, self.measures, lenient=self.lenient, keep=keep)

    def _score_stages(self, run: Run | Blocks, keep: int) -> Staged:
        from karat.evaluation.stages import KEEP, Staged, score_stages, thresholds_of

        keep = max(keep, KEEP, thresholds_of(self._conventions.profile).far)
        how: dict[str, Any] = {"lenient": self.lenient, "keep": keep}
        if run.staged and not fits_in_memory(run.source):
            self.notify(
                f"karat: {run.source.name} takes more memory than {MEMORY_VARIABLE} allows: only"
                " its final lists are looked at, not its calls and earlier stages"
            )
            return Staged(score_run(run, self.prepared, self.measures, **how), self.prepared)
        return score_stages(run, self.prepared, self.measures, of_stages=[], **how)

    def _score_with_engine(self, run: Any, keep: int) -> Scores:
        engine, prepared = self.engine, self.prepared
        if engine is None:
            # A DataFrame of Spark is scored where its rows are, against gold that is sent there.
            from karat.spark.engine import SparkEngine

            engine = SparkEngine(run.sparkSession, owned=False)
            prepared = self._prepare(engine.read_gold(self.gold, duplicates="agree", format=None))
        elif not is_file(run) and not is_spark(run):
            raise UsageError(
                "gold of Spark goes with a run of Spark; make both DataFrames or neither"
            )
        return engine.score(
            run,
            prepared,
            self.measures,
            lenient=self.lenient,
            queries=self.queries,
            corpus=self.corpus,
            keep=keep,
            format=self._run_format,
            strict=self._strict,
        )


_ENGINE_WITHOUT_RANGES = "only the local engine reports bounds: it holds every list"
MIXTURE = "compare takes runs with their gold, or scores; not a mixture"
NO_LISTS = "bounds need whole lists, which scores do not have; give the runs"


def _needs_lists(option: str) -> UsageError:
    return UsageError(f"{option} needs every list in one place; use --engine local")


@contextmanager
def _no_progress(names: Sequence[str]) -> Iterator[Callable[[str], None]]:
    yield lambda name: None


class _ScoredRun(NamedTuple):
    """The scores of one run, its stages, its scores with a judge's labels, and its ranges."""

    scores: Scores
    staged: Staged | None
    labelled: Scores | None
    ranges: ScoreRanges | None


@dataclass(frozen=True, eq=False)
class ScoredRuns:
    """The scores of every run, and their details for a report.

    ``labelled`` are the scores with a judge's labels, ``ranges`` those over unjudged items, or
    ``why_no_ranges`` gives the reason for their absence.
    """

    evaluation: Evaluation
    scores: list[Scores]
    staged: tuple[Staged, ...] = ()
    labelled: tuple[Scores, ...] = ()
    ranges: tuple[ScoreRanges | None, ...] = ()
    strict_bounds: bool = False
    why_no_ranges: str | None = None

    def compared(self) -> list[Scores]:
        """Return the scores without the measures that are scored but not compared."""
        left_out = self.evaluation.not_compared
        return [
            replace(scores, measures=tuple(m for m in scores.measures if m not in left_out))
            for scores in self.scores
        ]

    def compare(self, rule: Rule, systems: Sequence[ComparedSystem]) -> Comparisons:
        """Compare the systems with the first, with ranges where every system has one run."""
        from karat.evaluation.comparison import compare_scores

        evaluation = self.evaluation
        queries, by = evaluation.queries, evaluation.by
        comparisons = compare_scores(systems, rule, queries=queries, by=by)
        ranges = [run_ranges for run_ranges in self.ranges if run_ranges is not None]
        single = all(len(system.runs) == 1 for system in systems)
        complete = ranges and len(ranges) == len(systems) == len(self.ranges)
        if not single or not complete or comparisons.rule.pairs != "baseline":
            return comparisons
        from karat.evaluation.bounds import with_bounds

        return with_bounds(
            comparisons,
            systems,
            ranges,
            evaluation.prepared,
            queries=queries,
            by=by,
            strict=self.strict_bounds,
        )

    def gatings(self, names: Sequence[str], *, skip: Collection[str] = ()) -> list[Gating]:
        """Compare every run but some with the gates; ``names`` are those of the runs."""
        evaluation = self.evaluation
        from karat.evaluation.gates import judge_strictly

        all_ranges = self.ranges if self.strict_bounds else (None,) * len(self.scores)
        gatings = []
        for name, scores, ranges in zip(names, self.scores, all_ranges, strict=True):
            if name not in skip:
                gating = evaluation.gate(scores, system=name)
                if ranges is not None:
                    gating = judge_strictly(gating, evaluation.gates, ranges, evaluation.queries)
                gatings.append(gating)
        return gatings
