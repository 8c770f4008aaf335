"""Judge: have a model, or a stand-in, grade the pairs of a pool and write the labels.

Pairs are judged in parallel, retried where that may help, and written in order. A judging that
was stopped can be resumed; judgments are cached by everything they depend on.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from karat.errors import CallError, InputError, KaratError, UsageError, unknown
from karat.formats.json_records import parse_json
from karat.jobs.cache import CACHE_FOLDER, JsonlCache
from karat.jobs.calls import LONGEST_ASKED, Retries
from karat.jobs.journal import Journal, json_lines, part_of
from karat.label.judges import (
    Endpoint,
    FailedAnswer,
    GradedAnswer,
    Judge,
    JudgeCallError,
    JudgeGoneError,
    Outcome,
    Overlap,
    Tokens,
    read_prompt,
)
from karat.label.labels import GRADES, Pair, read_labels, read_pairs
from karat.pages.formatting import plural
from karat.pages.page import Page, Section
from karat.pages.result import Result
from karat.parallel import in_order

if TYPE_CHECKING:
    import polars as pl

Advance = Callable[[int], None]
ReportWait = Callable[[float, str], None]
# Yields an object whose ``advance`` is called with the number of pairs done.
Progress = Callable[[str, int], AbstractContextManager[Any]]
# If this many calls are refused before any is answered, all of them will be.
_REFUSED = 5
# Shorter waits, in seconds, are not reported.
_REPORTED_WAIT = 5.0
# The summary names this many reasons for failures; the file has all.
_REASONS = 8
_MILLION = 1_000_000


class InterruptedJudging(KeyboardInterrupt):
    """The user stopped it; the message says what is kept and how to resume."""


def judge(
    pool: str | os.PathLike[str] | Sequence[Pair],
    output: str | os.PathLike[str],
    *,
    judge: str | Judge = "model",
    url: str | None = None,
    model: str | None = None,
    key_env: str | None = None,
    prompt: str | os.PathLike[str] | None = None,
    body: Mapping[str, Any] | str | None = None,
    concurrency: int | None = None,
    rate: float | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    max_failures: float = 0.05,
    resume: bool = False,
    restart: bool = False,
    cache: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
    progress: Progress | None = None,
    report_wait: ReportWait = lambda seconds, why: None,
) -> Judged:
    """Grade every pair of a pool and write the labels to ``output``, a .jsonl file.

    ``judge`` is "model" (the ``model`` at ``url``, an OpenAI-compatible endpoint), "overlap" (a
    stand-in that counts shared words) or any object with ``rater``, ``key``, ``ask`` and
    ``close``. A model's judgments are cached, those of another object only with a ``cache``. A
    pair that cannot be judged is kept with its reason, never as grade 0. Prices are for a million
    tokens.

    >>> pairs = karat.pool(["bm25.trec"], queries="queries.jsonl", corpus="corpus.jsonl", depth=2)
    >>> pairs.save("pool.jsonl")
    >>> result = karat.judge("pool.jsonl", "labels.jsonl", judge="overlap")
    >>> result.to_dict()["pairs"], result.to_dict()["failed"]
    (18, 0)
    """
    if cache == "":
        raise UsageError("--cache is empty; name a folder, such as .karat")
    for name in (name for name in (pool, prompt) if isinstance(name, str | os.PathLike)):
        if str(name) != "-" and os.path.realpath(name) == os.path.realpath(output):
            raise UsageError(f"output {str(output)!r} is also an input; choose another name")
    if resume and restart:
        raise UsageError("--resume continues and --restart starts over; give one of them")
    if (price_in is None) != (price_out is None):
        raise UsageError("--price-in and --price-out go together; give both")
    path = Path(output)
    if path.suffix != ".jsonl":
        raise InputError("a label file ends in .jsonl; choose such a name", where=str(path))
    for_model: dict[str, Any] = {
        "url": url,
        "model": model,
        "prompt": prompt,
        "body": body,
        "key_env": key_env,
        "rate": rate,
        "timeout": timeout,
        "concurrency": concurrency,
        "retries": retries,
        "cache": cache,
        "price_in": price_in,
        "price_out": price_out,
    }
    with ExitStack() as stack:
        chosen = _judge_named(judge, for_model) if isinstance(judge, str) else judge
        stack.enter_context(closing(chosen))
        pairs = read_pairs(os.fspath(pool)) if isinstance(pool, str | os.PathLike) else list(pool)
        pairs = pairs if limit is None else pairs[:limit]
        judgments = None
        if cache or judge == "model":
            # By the digest of everything they depend on: grades and rationales, no texts.
            file = Path(cache or CACHE_FOLDER) / "judgments.jsonl"
            judgments = stack.enter_context(closing(JsonlCache(file, asdict, _decode_answer)))
        shown = progress and stack.enter_context(progress(chosen.rater, len(pairs)))
        most_retries = 3 if retries is None else retries
        runner = Runner(chosen, concurrency or 4, most_retries, judgments, report_wait=report_wait)
        prices = None if price_in is None or price_out is None else (price_in, price_out)
        judged = Judged(path, chosen.rater, runner.tally, max_failures, prices)
        tasks = [Task(pair, chosen.key(pair)) for pair in pairs]
        journal = LabelJournal(path, tasks, resume=resume, restart=restart)
        stack.enter_context(closing(journal))
        advance = shown.advance if shown else (lambda pairs: None)
        _write_labels(judged, journal, runner, tasks, advance)
    return judged


def _judge_named(kind: str, options: Mapping[str, Any]) -> Judge:
    """Return the judge of this kind; ``options`` are those that only a model has."""
    if kind == "overlap":
        for name in (name for name, value in options.items() if value is not None):
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for a model; leave it out with --judge overlap")
        return Overlap()
    if kind != "model":
        raise unknown("judge", kind, ("model", "overlap"))
    for name in ("url", "model"):
        if options[name] is None:
            raise UsageError(f"--{name} is missing; a model needs --url URL --model NAME")
    body, prompt = options["body"], options["prompt"]
    if isinstance(body, str):
        try:
            body = parse_json(body, "--body", None)
        except InputError as error:
            raise UsageError(f"--body is {error.what}") from None
        if not isinstance(body, dict):
            raise UsageError('--body is not a JSON object; an example is {"cache_prompt": false}')
    names = ("url", "model", "key_env", "rate", "timeout")
    fields = {name: options[name] for name in names if options[name] is not None}
    template = read_prompt(None if prompt is None else os.fspath(prompt))
    return Endpoint(template, os.environ, **fields, more=body or {})


@dataclass
class Tally:
    """Counts of the calls, for the summary at the end."""

    asked: int = 0
    cached: int = 0
    retried: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    without_tokens: int = 0
    """Answers that did not report how many tokens they used."""


@dataclass(repr=False)
class Judged(Result):
    """The outcome of judging a pool: its lines are counted as they are written.

    ``reasons`` counts failures by their reason; ``kept`` are lines of an earlier judging.
    ``prices`` are those of a million tokens of prompts and of completions.
    """

    path: Path
    rater: str
    tally: Tally
    max_failures: float = 0.05
    prices: tuple[float, float] | None = None
    grades: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    kept: int = 0

    def count(self, line: Line, *, is_new: bool) -> None:
        """Count one line of the label file."""
        self.kept += not is_new
        if line.grade is not None:
            self.grades[line.grade] += 1
        else:
            self.reasons[str(line.record.get("error")).partition(": ")[0]] += 1

    @property
    def pairs(self) -> int:
        """The number of pairs, with a grade or without."""
        return self.grades.total() + self.failed

    @property
    def failed(self) -> int:
        """The number of pairs without a grade."""
        return self.reasons.total()

    @property
    def partial(self) -> bool:
        """Whether too many pairs failed for the labels to represent the pool."""
        return self.failed > self.max_failures * self.pairs

    @property
    def cost(self) -> float | None:
        """What the answers cost; None if one did not report its tokens, or without prices."""
        tally = self.tally
        if self.prices is None or tally.without_tokens:
            return None
        spent = tally.prompt_tokens * self.prices[0] + tally.completion_tokens * self.prices[1]
        return spent / _MILLION

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
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
            "without_tokens": tally.without_tokens,
            "cost": self.cost,
            "reasons": dict(sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))),
        }

    def to_frame(self) -> pl.DataFrame:
        """Return the labels, as read from the file."""
        return read_labels(self.path).frame

    def page(self) -> Page:
        """Return the page: grades, calls, costs and failures."""
        if not self.pairs:
            empty = f"{self.rater}: nothing is left to judge in the pool: 0 labels → {self.path}"
            return Page("Labels", [empty])
        tally, cost = self.tally, self.cost
        graded = ", ".join(f"{self.grades[grade]:,} of grade {grade}" for grade in reversed(GRADES))
        headline = f"{self.rater}: {plural(self.pairs, 'pair')}: {graded} → {self.path}"
        counts = {
            "cached": tally.cached,
            "from before": self.kept,
            "retried": tally.retried,
            "prompt tokens": tally.prompt_tokens,
            "completion tokens": tally.completion_tokens,
            "without a count of tokens": tally.without_tokens,
        }
        parts = [f"{number:,} {words}" for words, number in counts.items() if number]
        parts += [] if cost is None else [f"cost {cost:,.4f}"]
        lines = [", ".join([f"{plural(tally.asked, 'pair')} asked", *parts])]
        if self.failed:
            reasons = self.reasons.most_common(_REASONS)
            lines += [f"{plural(self.failed, 'pair')} without a grade:"]
            lines += [f"  {count:,} × {reason}" for reason, count in reasons]
        return Page("Labels", [headline], [Section("", None, lines)])


def _write_labels(
    judged: Judged, journal: LabelJournal, runner: Runner, tasks: Sequence[Task], advance: Advance
) -> None:
    """Judge every pair, write its line and count it."""
    try:
        for line in journal.done:
            judged.count(line, is_new=False)
        advance(judged.kept)
        # Failed pairs of a finished file are asked again.
        remaining_tasks = tasks[len(journal.done) :]
        pending = (task for task in remaining_tasks if task.name not in journal.earlier)
        with closing(runner.outcomes(pending)) as outcomes:
            for task in remaining_tasks:
                earlier_line = journal.earlier.get(task.name)
                line = earlier_line or line_of(task, next(outcomes)[1], judged.rater)
                journal.write(line.data)
                judged.count(line, is_new=earlier_line is None)
                advance(1)
    except KeyboardInterrupt:
        raise InterruptedJudging(journal.interrupted(len(tasks))) from None
    except JudgeGoneError as error:
        raise JudgeGoneError(f"{error}; {journal.interrupted(len(tasks))}") from None
    failure = runner.unanswered
    if judged.grades or failure is None:
        journal.finish()
        return
    journal.discard()
    where = f"{failure.where}: " if failure.where else ""
    state = f"{judged.path} is unchanged" if judged.path.exists() else "no label file was written"
    advice = "check that the endpoint is up, then run it again"
    raise JudgeGoneError(f"no call succeeded: {where}{failure}; {state}: {advice}")


class Task(NamedTuple):
    """A pair and the digest of everything its judgment depends on."""

    pair: Pair
    key: str

    @property
    def name(self) -> tuple[str, str, str]:
        """The ids of the pair, and the part of the digest that a label carries."""
        return self.pair.query_id, self.pair.item_id, self.key[:16]


class Line(NamedTuple):
    """One complete line of a label file: its record and its bytes."""

    record: Mapping[str, Any]
    data: bytes

    @property
    def name(self) -> tuple[str, str, str]:
        """The name of the task that it is the outcome of."""
        return self.record["query_id"], self.record["item_id"], str(self.record.get("digest"))

    @property
    def grade(self) -> int | None:
        """The grade; None for a failure."""
        return self.record.get("grade")


def line_of(task: Task, outcome: Outcome, rater: str) -> Line:
    """Return the line of a judgment, or of the reason why there is none."""
    query_id, item_id, digest = task.name
    record: dict[str, Any] = {"query_id": query_id, "item_id": item_id}
    if isinstance(outcome, GradedAnswer):
        record |= {"grade": outcome.grade, "rationale": outcome.rationale}
    else:
        record |= {"error": outcome.error}
    record |= {"rater": rater, "source": "judge", "digest": digest}
    return Line(record, (json.dumps(record, ensure_ascii=False) + "\n").encode())


class LabelJournal(Journal):
    """A label file while it is written; ``done`` are the lines of an interrupted judging.

    ``earlier`` are the judgments that a finished file has, by the names of their tasks.
    Each line carries the digest of what it depends on, so resuming never mixes in judgments of
    another model, prompt or text.
    """

    def __init__(self, path: Path, tasks: Sequence[Task], *, resume: bool, restart: bool) -> None:
        super().__init__(path, noun="pair", verb="judged")
        # Messages show the name as it was given.
        self.path, self.part = path, part_of(path)
        self.done: list[Line] = []
        self.earlier: dict[tuple[str, str, str], Line] = {}
        try:
            if self.part.is_file():
                self.lock()
                if not restart:
                    self._continue(tasks, resume=resume)
            if path.is_file() and not self.done and not restart:
                self.earlier = self._finished(tasks, resume=resume)
        except KaratError:
            self.close()
            raise

    def _continue(self, tasks: Sequence[Task], *, resume: bool) -> None:
        """Keep the lines of an interrupted judging, as far as they are complete and in order."""
        for line, task in zip(_read_lines(self.part), tasks, strict=False):
            if line.name != task.name:
                break
            self.done.append(line)
            self.keep(line.data)
        if self.done and not resume:
            kept = f"{self.part} holds {len(self.done):,} judgments of an interrupted run"
            raise UsageError(f"{kept}; resume it with --resume, or start over with --restart")
        if not self.done and next(_read_lines(self.part), None) is not None:
            raise _of_another_run(self.part, "start over with --restart")

    def _finished(self, tasks: Sequence[Task], *, resume: bool) -> dict[tuple[str, str, str], Line]:
        """Return the judgments of a finished file to keep; other labels are not replaced."""
        lines = list(_read_lines(self.path))
        names = {task.name for task in tasks}
        of_this_run = {line.name: line for line in lines if line.name in names}
        size = self.path.stat().st_size
        if resume:
            if size and not of_this_run:
                raise _of_another_run(self.path, "choose another name, or use --restart")
            return {name: line for name, line in of_this_run.items() if line.grade is not None}
        # Lines that cannot be read, or that are not judged again here, would be lost.
        if sum(len(line.data) for line in lines if line.name in names) < size:
            remedy = "resume it with --resume, " if of_this_run else ""
            others = f"{self.path} holds labels of another run; choose another name"
            raise UsageError(f"{others}, {remedy}or replace them with --restart")
        return {}


def _of_another_run(path: Path, remedy: str) -> UsageError:
    changed = "the pool, the model, the prompt or what is sent has changed since"
    return UsageError(f"{path} is of another run: {changed}; {remedy}")


def _read_lines(path: Path) -> Iterator[Line]:
    """Yield the complete lines of a label file, up to the first that cannot be read."""
    for data, record in json_lines(path):
        if not all(isinstance(record.get(name), str) for name in ("query_id", "item_id")):
            return
        yield Line(record, data)


def _decode_answer(record: Mapping[str, Any]) -> GradedAnswer:
    grade, rationale = record["grade"], record["rationale"]
    # True is a whole number to Python.
    if type(grade) is not int or grade not in GRADES or not isinstance(rationale, str):
        raise ValueError("not a judgment")
    return GradedAnswer(grade, rationale)


@dataclass(eq=False)
class Runner:
    """Asks a judge about pairs in parallel, with retries, and counts the calls.

    Outcomes come back in the order of the pairs. Each is in the cache at once, so that stopping
    loses no judgment.
    """

    judge: Judge
    concurrency: int = 1
    retries: int = 3
    cache: JsonlCache[GradedAnswer] | None = None
    tally: Tally = field(default_factory=Tally)
    report_wait: ReportWait = lambda seconds, why: None
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: int = 0
    _answered: bool = False
    _last_failure: JudgeCallError | None = None
    _gone: JudgeGoneError | None = None
    _reported_until: float = 0.0

    def __post_init__(self) -> None:
        self._retries = Retries(self.retries, self._before_wait, self._stop)

    @property
    def unanswered(self) -> JudgeCallError | None:
        """The last failure, if calls were made and the endpoint answered none of them."""
        return None if self._answered else self._last_failure

    def outcomes(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Outcome]]:
        """Yield each pair with its outcome, in the order given."""
        return in_order(self._outcome, tasks, concurrency=self.concurrency, stop=self._stop)

    def _outcome(self, task: Task) -> Outcome:
        for name, text in (("query", task.pair.query), ("item's text", task.pair.text)):
            if not text.strip():
                return FailedAnswer(f"the {name} is blank")
        cached = None if self.cache is None else self.cache.get(task.key)
        with self._lock:
            self.tally.cached += cached is not None
            self.tally.asked += cached is None
        if cached is not None:
            return cached
        try:
            outcome = self._retries.call(lambda: self._ask(task.pair))
        except JudgeCallError as error:
            reason, _, detail = str(error).partition(": ")
            return FailedAnswer(reason, detail)
        if self.cache is not None and isinstance(outcome, GradedAnswer):
            self.cache.put(task.key, outcome)
        return outcome

    def _ask(self, pair: Pair) -> Outcome:
        if self._stop.is_set():
            raise self._gone or JudgeGoneError("stopped")
        try:
            reply = self.judge.ask(pair)
            with self._lock:
                self._answered = True
                tokens = reply.tokens or Tokens()
                self.tally.prompt_tokens += tokens.prompt
                self.tally.completion_tokens += tokens.completion
                self.tally.without_tokens += reply.tokens is None
        except JudgeCallError as error:
            with self._lock:
                self._note_failure(error)
            raise
        except JudgeGoneError as error:
            raise self._give_up(str(error)) from None
        return reply.outcome

    def _note_failure(self, failure: JudgeCallError) -> None:
        """Give up on an endpoint that asks to wait too long, or that refuses everything."""
        if (failure.wait or 0.0) > LONGEST_ASKED:
            longest = f"karat waits {LONGEST_ASKED:g} s at most: try again then"
            raise self._give_up(f"{failure}; it asks to wait {failure.wait:,.0f} s and {longest}")
        self._last_failure = failure
        self._refused += failure.status is not None and not failure.may_pass
        if self._refused >= _REFUSED and not self._answered:
            refused = f"the first {_REFUSED} calls were all refused: {failure}"
            raise self._give_up(f"{refused}; correct --model or what --body adds to every call")

    def _before_wait(self, error: CallError, seconds: float) -> None:
        """Count a retry; report its wait unless it is short or another call waits as long."""
        self.tally.retried += 1
        end = time.monotonic() + seconds
        if seconds >= _REPORTED_WAIT and end > self._reported_until + _REPORTED_WAIT:
            self._reported_until = end
            self.report_wait(seconds, str(error).partition(": ")[0])

    def _give_up(self, reason: str) -> JudgeGoneError:
        """Stop the other calls, which would fail for the same reason."""
        self._gone = self._gone or JudgeGoneError(reason)
        self._stop.set()
        return self._gone
