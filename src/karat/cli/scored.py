"""Scored runs on their way to a report: bounded, held against gates, told in full."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from karat.abreast import abreast
from karat.analysis.thresholds import lines_of
from karat.measures.scores import Scores
from karat.reports.document import Report, System, build_report

if TYPE_CHECKING:
    from karat.analysis.gates import Gating
    from karat.analysis.playbook.case import Finding
    from karat.analysis.staged import Staged
    from karat.analysis.unjudged import Open
    from karat.cli.scoring import Ready


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of every run, and what they were made with."""

    scores: list[Scores]
    given: Ready
    staged: tuple[Staged, ...] = ()
    labelled: tuple[Scores, ...] = ()
    open: tuple[Open | None, ...] = ()
    strict_bounds: bool = False
    left_out: str | None = None

    def report(self) -> Report:
        """The report on all systems, with the segments asked for."""
        given = self.given
        report = build_report(
            self.scores, gold=given.gold, queries=given.queries, corpus=given.corpus, by=given.by
        )
        return replace(
            report,
            gates=given.gates_file,
            fields=given.fields.given,
            systems=self._opened(self._bounded(self._in_full(report.systems))),
            labelled=given.labelled,
            index=given.index,
            findings=None if self.found is None else tuple(one.sentence for one in self.found),
            bounds_left_out=self.left_out,
            people=() if given.correcting is None else given.correcting.people,
        )

    @cached_property
    def found(self) -> tuple[Finding, ...] | None:
        """What to fix next in the system that comes last, the one that may be shipped."""
        if not self.staged:
            return None
        from karat.analysis.playbook.findings import findings

        staged = self.staged[-1]
        lines = lines_of(staged.final.conventions.profile)
        return findings(staged, self.given.queries, lines=lines, by=self.given.by).findings

    def _bounded(self, systems: tuple[System, ...]) -> tuple[System, ...]:
        """The systems with what a judge's labels change; a stored baseline has none."""
        if not self.labelled:
            return systems
        from karat.analysis.bounds import bounds_of, of_the_same_queries

        first = len(systems) - len(self.labelled)
        bounded = []
        for system, scores in zip(systems[first:], self.labelled, strict=True):
            found = bounds_of(system.summaries, of_the_same_queries(scores, system.scores))
            bounded.append(replace(system, bounds=self._corrected(found, system)))
        return (*systems[:first], *bounded)

    def _corrected(self, bounds: dict[str, dict[str, Any]], system: System) -> dict[str, Any]:
        """The bounds with the precision that the judge would tell if it never erred."""
        correcting = self.given.correcting
        found = {} if correcting is None else correcting.system(system.scores)
        return {
            name: cell | ({"corrected": found[name]} if name in found else {})
            for name, cell in bounds.items()
        }

    def _opened(self, systems: tuple[System, ...]) -> tuple[System, ...]:
        """The systems with the ranges of their figures; a stored baseline has none."""
        first = len(systems) - len(self.open)
        opened = zip(systems[first:], self.open, strict=True)
        return (*systems[:first], *(replace(system, open=one) for system, one in opened))

    def _in_full(self, systems: tuple[System, ...]) -> tuple[System, ...]:
        """The systems with what lies behind their figures; a stored baseline stands before them."""
        if not self.staged:
            return systems
        from karat.analysis.behind import behind, failures_of

        first = len(systems) - len(self.staged)
        queries, by = self.given.queries, self.given.by

        def full(one: tuple[System, Staged]) -> System:
            system, staged = one
            failures = failures_of(staged, queries)
            told = behind(staged, queries, by, failures)
            return replace(system, behind=told, staged=staged, failures=failures)

        pairs = list(zip(systems[first:], self.staged, strict=True))
        return (*systems[:first], *abreast(full, pairs))

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
        if self.strict_bounds:
            gatings = self._strictly(gatings, [name not in skip for name in names])
        return replace(report, gatings=tuple(gatings))

    def _strictly(self, gatings: Sequence[Gating], held: Sequence[bool]) -> list[Gating]:
        """The gates as they come out whatever the unjudged items are."""
        from karat.analysis.strict_gates import hold_strictly

        opened = [one for one, is_held in zip(self.open, held, strict=True) if is_held]
        given = self.given
        return [
            gating if own is None else hold_strictly(gating, given.gates, own, given.queries)
            for gating, own in zip(gatings, opened, strict=True)
        ]
