"""From pairs to a label file: judged in order, resumable, with what came of it counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from karat.errors import InputError
from karat.judging.judge_answers import Judge, JudgeGoneError, Unjudged
from karat.judging.judge_cache import JudgmentCache
from karat.judging.judge_journal import Journal, Line, Task, line_of
from karat.judging.judge_pairs import Pair
from karat.judging.judge_runner import Runner, Tally
from karat.judging.labels import GRADES

Advance = Callable[[int], None]
Waits = Callable[[float, str], None]
_MILLION = 1_000_000


class NoCallSucceededError(JudgeGoneError):
    """The endpoint did not answer a single call, so that there is nothing to write."""


class InterruptedJudging(KeyboardInterrupt):
    """The user stopped it; the message says what is kept and how to go on."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How a pool is to be judged; prices are for a million tokens."""

    concurrency: int = 4
    retries: int = 3
    max_failures: float = 0.05
    resume: bool = False
    restart: bool = False
    price_in: float | None = None
    price_out: float | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What came of judging a pool."""

    path: Path
    rater: str
    grades: Counter[int]
    reasons: Counter[str]
    """Why pairs failed, and how many for each reason."""
    kept: int
    """Lines that stood in the file before."""
    tally: Tally
    wishes: Wishes

    @property
    def pairs(self) -> int:
        return self.grades.total() + self.failed

    @property
    def failed(self) -> int:
        return self.reasons.total()

    @property
    def partial(self) -> bool:
        """Whether too many pairs failed for the labels to stand for the pool."""
        return self.failed > self.wishes.max_failures * self.pairs

    @property
    def cost(self) -> float | None:
        """What the answers cost; None where one did not say how many tokens it took."""
        wishes, tally = self.wishes, self.tally
        if wishes.price_in is None or wishes.price_out is None or tally.untold:
            return None
        spent = tally.prompt_tokens * wishes.price_in + tally.completion_tokens * wishes.price_out
        return spent / _MILLION

    def document(self) -> dict[str, Any]:
        """What came of it as plain data."""
        tally = self.tally
        return {
            "labels": str(self.path),
            "rater": self.rater,
            "pairs": self.pairs,
            "grades": {str(grade): self.grades[grade] for grade in reversed(GRADES)},
            "failed": self.failed,
            "partial": self.partial,
            "kept": self.kept,
            "cached": tally.cached,
            "asked": tally.asked,
            "retried": tally.retried,
            "tokens": {"prompt": tally.prompt_tokens, "completion": tally.completion_tokens},
            "without_tokens": tally.untold,
            "cost": self.cost,
            "reasons": dict(sorted(self.reasons.items(), key=lambda one: (-one[1], one[0]))),
        }


def judge_pairs(
    pairs: Sequence[Pair],
    judge: Judge,
    path: Path,
    *,
    wishes: Wishes | None = None,
    cache: JudgmentCache | None = None,
    advance: Advance = lambda pairs: None,
    waits: Waits = lambda seconds, why: None,
) -> Judged:
    """Judge every pair and write the labels.

    ``advance`` hears of each pair as it is done, ``waits`` of long waits before another try.
    """
    wishes = wishes or Wishes()
    if path.suffix != ".jsonl":
        raise InputError("a label file ends in .jsonl; choose such a name", where=str(path))
    tasks = [Task(pair, judge.key(pair)) for pair in pairs]
    runner = Runner(judge, wishes.concurrency, wishes.retries, cache, waits=waits)
    journal = Journal(path, tasks, resume=wishes.resume, restart=wishes.restart)
    counts = _Counts()
    try:
        counts.add(journal.done)
        advance(counts.kept)
        with closing(_lines(journal, runner, tasks, judge.rater)) as lines:
            for line, is_new in lines:
                journal.write(line)
                counts.add([line], is_new=is_new)
                advance(1)
        if not counts.grades and runner.unanswered is not None:
            journal.discard()
            raise _no_call_succeeded(runner.unanswered, path)
        journal.finish()
    except KeyboardInterrupt:
        raise InterruptedJudging(f"interrupted; {_left(counts, tasks, journal)}") from None
    except NoCallSucceededError:
        raise
    except JudgeGoneError as error:
        raise JudgeGoneError(f"{error}; {_left(counts, tasks, journal)}") from None
    finally:
        journal.close()
    return Judged(
        path=path,
        rater=judge.rater,
        grades=counts.grades,
        reasons=counts.reasons,
        kept=counts.kept,
        tally=runner.tally,
        wishes=wishes,
    )


@dataclass
class _Counts:
    """What the lines written so far come to."""

    grades: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    kept: int = 0

    def add(self, lines: Sequence[Line], *, is_new: bool = False) -> None:
        self.kept += 0 if is_new else len(lines)
        for line in lines:
            if line.grade is not None:
                self.grades[line.grade] += 1
            else:
                self.reasons[str(line.error).partition(": ")[0]] += 1


def _no_call_succeeded(last: Unjudged, path: Path) -> NoCallSucceededError:
    told = f"no call succeeded: {last.where}{': ' if last.where else ''}{last.error}"
    kept = f"{path} was left as it was" if path.exists() else "no label file was written"
    return NoCallSucceededError(f"{told}; {kept}: check that the endpoint is up, then run it again")


def _left(counts: _Counts, tasks: Sequence[Task], journal: Journal) -> str:
    done = counts.grades.total() + counts.reasons.total()
    if not done:
        return "nothing was written"
    return f"{done:,} of {len(tasks):,} pairs are kept in {journal.part}: go on with --resume"


def _lines(
    journal: Journal, runner: Runner, tasks: Sequence[Task], rater: str
) -> Generator[tuple[Line, bool]]:
    """A line for each pair that has none yet, in order, and whether it is new."""
    rest = tasks[len(journal.done) :]
    kept = {task: line for task in rest if (line := journal.kept(task)) is not None}
    with closing(runner.outcomes(task for task in rest if task not in kept)) as outcomes:
        for task in rest:
            if task in kept:
                yield kept[task], False
            else:
                yield line_of(task, next(outcomes)[1], rater), True
