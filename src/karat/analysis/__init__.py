"""Analyses: one module or package per question about runs, each with the same front.

The function named like its module is public: ``karat.sweep`` is that of ``karat.analysis.sweep``.
It takes an Evaluation and runs, and returns an ``Analysis`` with ``to_dict``, ``to_frame`` and
``page``; ``chunks`` takes documents and ``check`` an eval set. This module has what they share: the
runs, scored stage by stage, and the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from karat.data.columns import Source
from karat.data.tables import Blocks, Run
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.inputs import is_file
from karat.evaluation.report_text import origin_of
from karat.evaluation.stages import KEEP, Staged, score_stages
from karat.evaluation.systems import distinct_names
from karat.evaluation.top_lists import SHOWN_ROWS, Ints, ranked_of
from karat.measure.names import Measure
from karat.measure.scores import Scores
from karat.pages.formatting import label, plural, utf8
from karat.pages.page import Page, Section, TableColumns, table
from karat.pages.result import AnalysisResult, Result
from karat.pages.serialize import plain


class Analysis(AnalysisResult):
    """The result of an analysis of runs."""

    @property
    def unmeasured(self) -> str | None:
        """Why the result is unreliable or empty; None if it is sound."""
        systems = self.body.get("systems") or [{"name": self.body.get("system"), **self.body}]
        counts = [system["counts"] for system in systems if "counts" in system]
        if counts and not any(
            count["scored"] + count["no_answer"] + count["empty_gold"] for count in counts
        ):
            return "no query could be scored"
        partial = [label(system["name"]) for system in systems if system.get("partial")]
        return f"too many calls of {', '.join(partial)} failed" if partial else None


@dataclass(frozen=True, eq=False, repr=False)
class SystemAnalysis(Result):
    """The answer to one question about one system, as plain data.

    ``sections_of`` makes its page from the data, which may come from a file.
    """

    document: Mapping[str, Any]
    sections_of: Callable[[Mapping[str, Any]], Sequence[Section]]

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data with stable keys."""
        return {name: plain(value) for name, value in self.document.items()}

    def page(self) -> Page:
        """Return the page that people read."""
        return Page("", blocks=self.sections_of(self.to_dict()))


Made = TypeVar("Made", bound=Analysis)


@dataclass(frozen=True, eq=False)
class StagedRuns:
    """The systems by name, each scored stage by stage, and the evaluation that scored them.

    ``opened`` are the runs themselves, to score them differently. ``more_inputs`` are files
    that are neither runs nor inputs of the evaluation, by what they hold.
    """

    evaluation: Evaluation
    systems: Mapping[str, Staged]
    opened: Mapping[str, Run | Blocks]
    more_inputs: Mapping[str, Source] = field(default_factory=dict)

    def result(
        self,
        made: type[Made],
        body: Mapping[str, Any],
        page_of: Callable[[Mapping[str, Any]], Page],
    ) -> Made:
        """Return the analysis with its conventions and inputs.

        Each of ``body["systems"]`` also gets its counts, and what ranks it where systems differ.
        """
        conventions = [staged.final.conventions for staged in self.systems.values()]
        same_order = len({convention.order for convention in conventions}) == 1
        if "systems" in body:
            pairs = zip(body["systems"], self.systems.values(), strict=True)
            body = {
                **body,
                "systems": [{**row, **counts_of(run, order=not same_order)} for row, run in pairs],
            }
        evaluation = self.evaluation
        metas = [staged.final.meta for staged in self.systems.values()]
        return made(
            body,
            (conventions[0] if same_order else replace(conventions[0], order=None)).document(),
            page_of,
            {
                **inputs_of(evaluation, [run.final.source for run in self.systems.values()]),
                **self.more_inputs,
                **origin_of(metas, evaluation.queries),
            },
        )


def inputs_of(evaluation: Evaluation, runs: Sequence[Source]) -> dict[str, Any]:
    """Return the inputs of an analysis: those of the evaluation, and the runs."""
    return {
        "gold": evaluation.gold.source,
        "runs": list(runs),
        "queries": evaluation.queries and evaluation.queries.source,
        "corpus": evaluation.corpus and evaluation.corpus.source,
        **({"fields": dict(evaluation.fields.given)} if evaluation.fields.given else {}),
    }


def counts_of(staged: Staged, *, order: bool = False) -> dict[str, Any]:
    """Return the counts of a run's queries and hits; with ``order`` also its ranking column."""
    final = staged.final
    document: dict[str, Any] = {"counts": asdict(final.counts)}
    if final.nothing_found:
        document["nothing_found"] = final.nothing_found
    if order:
        document["conventions"] = {"order": final.conventions.order}
    return document | ({"partial": True} if final.partial else {})


def system_blocks(
    systems: Sequence[Mapping[str, Any]],
    sections_of: Callable[[Mapping[str, Any]], Iterable[Section]],
) -> Iterator[Section]:
    """Yield the sections of every system, their titles after its name if there are several."""
    for system in systems:
        prefix = "" if len(systems) == 1 else f"{label(system['name'])}: "
        for section in sections_of(system):
            yield replace(section, title=f"{prefix}{section.title}") if section.title else section


def judgments_met(scores: Scores, k: int | None = None) -> Ints:
    """Return the relevant judgments that the first k hits of some lists meet, by their rows."""
    ranked = ranked_of(scores)
    found = ranked.found
    if found.row is None:
        return np.empty(0, dtype=np.int64)
    return np.unique(found.row[ranked.top(k, found) & found.relevant(scores.conventions.rel)])


def counted_lines(facts: Mapping[str, Any], sentences: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return a line for each fact that is not 0: its number, and the words for one or for more."""
    return [plural(facts[name], *words) for name, words in sentences.items() if facts.get(name)]


def first_rows(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    columns: TableColumns,
    *,
    most: int = SHOWN_ROWS,
    total: int = 0,
) -> list[Section]:
    """Return a section of the first rows, with the number of the others; none without rows."""
    lines = [f"and {total - most:,} more"] if total > most else []
    return [Section(title, table(rows[:most], columns), lines)] if rows else []


def stage_runs(
    evaluation: Evaluation,
    runs: Sequence[Any],
    measures: Sequence[Measure] | None = None,
    *,
    keep: int = KEEP,
    of_stages: Sequence[Measure] | None = None,
) -> StagedRuns:
    """Score every run by ``measures``, else by those of the evaluation.

    Lists of earlier stages are scored by the same measures, or by ``of_stages``.
    """
    opened: list[Run | Blocks] = []
    for run in runs:
        lists = evaluation.open(run)
        # A pipe can be read only once.
        opened.append(lists.read() if isinstance(run, str) and run == "-" else lists)
    chosen = evaluation.measures if measures is None else measures
    names = [str(run) if is_file(run) else f"run {number}" for number, run in enumerate(runs, 1)]
    staged: list[Staged] = []
    with evaluation.progress(names) as begin:
        for name, lists in zip(names, opened, strict=True):
            begin(name)
            staged.append(
                score_stages(
                    lists,
                    evaluation.prepared,
                    chosen,
                    lenient=evaluation.lenient if measures is None else measures,
                    keep=keep,
                    of_stages=of_stages,
                )
            )
    evaluation.fields.check()
    systems = distinct_names([utf8(run.final.system) for run in staged])
    return StagedRuns(
        evaluation,
        dict(zip(systems, staged, strict=True)),
        dict(zip(systems, opened, strict=True)),
    )
