"""Whether the figures of runs are bounded over their unjudged items, and the lists it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from karat.errors import UsageError
from karat.measures.prepare import Prepared
from karat.measures.scores import Scores
from karat.measures.scores import score as score_run
from karat.tables import Blocks

if TYPE_CHECKING:
    from karat.analysis.unjudged import Open

WHOLE_LISTS = 1 << 31
# A file of more bytes than this has too many hits, unless somebody asks for bounds.
_MOST_BYTES = 20_000_000


@dataclass(eq=False)
class Bounding:
    """What is wanted, and the whole lists of every run while they are scored.

    ``asked`` says that somebody wants bounds whatever they cost, ``wanted`` that there will be
    some unless there turn out to be too many hits. ``left_out`` says why there are none.
    """

    wanted: bool
    asked: bool
    left_out: str | None = None
    _whole: list[Scores] = field(default_factory=list)

    @classmethod
    def of(
        cls, runs: Sequence[str], gold: Prepared, *, bounds: bool | None, strict: bool
    ) -> Bounding:
        """By what was asked for, the size of the files, and what the gold judges."""
        if strict and bounds is False:
            raise UsageError("--strict-bounds decides by bounds; leave --no-bounds out")
        asked = bool(bounds) or strict
        if asked:
            from karat.analysis.unjudged import check_level

            check_level(gold)
        if bounds is False:
            return cls(wanted=False, asked=False)
        if not asked and gold.conventions.level != "item":
            return cls(wanted=False, asked=False)
        large = [name for name in runs if Path(name).is_file() and _bytes(name) > _MOST_BYTES]
        if large and not asked:
            return cls(wanted=False, asked=False, left_out=_TOO_MANY)
        return cls(wanted=True, asked=asked)

    def whole(self, run: Blocks, scores: Scores, gold: Prepared) -> Scores:
        """Scores with the whole lists of their run, which may have been cut when it was scored."""
        lists = score_run(run, gold, (), keep=WHOLE_LISTS, derived=True).lists
        return replace(scores, lists=lists)

    def cut(self, whole: Scores, keep: int) -> Scores:
        """Scores with as much of their lists as the report needs."""
        from karat.analysis.unjudged import cut

        return cut(whole, keep)

    def take(self, whole: Scores | None) -> None:
        """Hold on to whole lists, until there are too many hits for nobody's wish."""
        from karat.analysis.unjudged import MOST_HITS

        if whole is None or not self.wanted:
            return
        self._whole.append(whole)
        hits = sum(0 if one.lists is None else one.lists.height for one in self._whole)
        if hits > MOST_HITS and not self.asked:
            self.wanted, self.left_out = False, _TOO_MANY
            self._whole.clear()

    def opened(self, gold: Prepared) -> tuple[Open | None, ...]:
        """The ranges of every run, where they are wanted."""
        if not self.wanted:
            return ()
        from karat.analysis.unjudged import open_of

        return tuple(None if one.lists is None else open_of(one, gold) for one in self._whole)


_TOO_MANY = "bounds are told of runs of up to 200,000 hits; --bounds tells them of these too"


def _bytes(name: str) -> int:
    return Path(name).stat().st_size
