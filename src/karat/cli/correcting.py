"""Precision without the errors of a judge, for the systems of a report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from karat.errors import UsageError
from karat.measures.names import Measure
from karat.measures.scores import Scores

if TYPE_CHECKING:
    from karat.analysis.compare import Comparisons
    from karat.analysis.comparison import Comparison
    from karat.columns import Source
    from karat.judging.corrected_runs import Corrector


@dataclass(frozen=True, eq=False)
class Correcting:
    """What corrects a judge, the measures that it can correct, and the people it goes by."""

    corrector: Corrector
    measures: tuple[Measure, ...]
    people: tuple[Source, ...]

    @property
    def depth(self) -> int:
        """How many of the top items of each query are looked at."""
        return max(one.k for one in self.measures if isinstance(one.k, int))

    def system(self, scores: Scores) -> dict[str, dict[str, Any]]:
        """Each P@k of a system, corrected."""
        return {str(one): self.corrector.precision(scores, one) for one in self.measures}

    def compared(self, found: Comparisons, scores: Mapping[str, Scores]) -> Comparisons:
        """Every comparison by P@k with the corrected difference of its two systems.

        ``scores`` are by the names of the systems; those of a stored baseline have no lists.
        """
        whole = {name for name, one in scores.items() if one.lists is not None}
        measures = {str(one) for one in self.measures}
        rows = [
            self._corrected(row, scores[row.baseline], scores[row.system])
            if row.segment is None
            and row.measure in measures
            and {row.baseline, row.system} <= whole
            else row
            for row in found.rows
        ]
        return replace(found, rows=tuple(rows))

    def _corrected(self, row: Comparison, first: Scores, second: Scores) -> Comparison:
        return replace(row, corrected=self.corrector.difference(first, second, row.measure))


def correcting_of(
    judged: str | None, human: Sequence[str], measures: Sequence[Measure]
) -> Correcting | None:
    """From the files of a judge and of people; None where no people are named."""
    if not human:
        return None
    if judged is None:
        raise UsageError("--human corrects the labels of a judge; name them with --judged")
    if "-" in human:
        raise UsageError("--human cannot be standard input; name a file")
    people = [os.path.realpath(name) for name in human]
    if os.path.realpath(judged) in people:
        raise UsageError("--judged and --human are the same file; a judge cannot correct itself")
    if len(set(people)) < len(people):
        raise UsageError("--human names a file twice; name each file once")
    from karat.judging.corrected_runs import Corrector, correctable
    from karat.judging.labels import read_labels
    from karat.judging.raters import read_people

    wanted = tuple(one for one in measures if correctable(one) and isinstance(one.k, int))
    if not wanted:
        raise UsageError("--human corrects P@k only; name one with -m, such as P@5")
    read = read_people(human)
    return Correcting(Corrector.of(read_labels(judged), read), wanted, tuple(read.sources))
