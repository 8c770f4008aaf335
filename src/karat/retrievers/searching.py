"""From a blueprint and queries to a run log: build, ask, write, and go on where it stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from karat.columns import Source, ends_of
from karat.errors import InputError
from karat.formats.contract import RUN_LOG_VERSION, VERSION_KEY, check_facts
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.digests import run_digest
from karat.retrievers.journal import DIGEST, REMEDY, Journal
from karat.retrievers.leaving import Leaving, leaving_in_order
from karat.retrievers.protocol import Answer, Query
from karat.retrievers.records import failed_record, record_of, to_json_line
from karat.retrievers.runner import Failed, Limits, Runner, Tally
from karat.retrievers.system import DEFAULT_K, System
from karat.retrievers.workshop import Workshop
from karat.version import __version__

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the caller wants otherwise than the karat.yaml says; None leaves it as it is.

    ``remedy`` is how the caller goes on with a search that was stopped.
    """

    k: int = DEFAULT_K
    concurrency: int | None = None
    rate: float | None = None
    retries: int | None = None
    max_failures: float | None = None
    resume: bool = False
    restart: bool = False
    remedy: str = REMEDY
    latency: bool = True
    dataset_version: str | None = None
    code_version: str | None = None
    queries: Source | None = None


@dataclass(frozen=True, eq=False)
class Searched:
    """A finished log, and what came of the calls in it.

    ``earlier`` is the log with answers that this one, in which every call failed, did not replace.
    """

    system: str
    path: Path
    calls: int
    failed: int
    max_failures: float
    tally: Tally = field(default_factory=Tally)
    reused: bool = False
    blank: int = 0
    notes: tuple[str, ...] = ()
    earlier: Path | None = None

    @property
    def all_failed(self) -> bool:
        """Whether not one call succeeded, so that nothing was measured."""
        return 0 < self.calls == self.failed

    @property
    def why_all_failed(self) -> str:
        """What happened to all calls, where the log is, and what was left alone."""
        [(reason, _)] = self.tally.reasons.most_common(1) or [("the log has the reasons", 0)]
        calls = "the only call" if self.calls == 1 else f"all {self.calls:,} calls"
        kept = "" if self.earlier is None else f"; {self.earlier} is as it was"
        return f"{self.system}: {calls} failed ({reason}); the log is {self.path}{kept}"

    @property
    def partial(self) -> bool:
        """Whether too many calls failed for the run to be judged."""
        return self.calls > 0 and self.failed / self.calls > self.max_failures


class InterruptedSearch(KeyboardInterrupt):
    """Ctrl-C while asking; the message says what is kept and how to go on."""


def is_reusable(blueprint: Blueprint) -> bool:
    """Whether an equal digest means equal answers.

    What lies behind a live system can change unseen, so it is asked again unless its
    index_version says what it is.
    """
    return not blueprint.live or blueprint.calls.index_version is not None


def search(
    blueprint: Blueprint,
    workshop: Workshop,
    queries: Sequence[Query],
    path: Path,
    *,
    wishes: Wishes | None = None,
    digest: str | None = None,
    advance: Advance = lambda calls: None,
) -> Searched:
    """Ask one system every query and write its log; ``advance`` hears of each call."""
    wishes = wishes or Wishes()
    _check(queries, path)
    digest = digest or run_digest(blueprint, workshop, queries, k=wishes.k)
    ids = [query.query_id for query in queries]
    again = {"resume": wishes.resume, "restart": wishes.restart}
    journal = Journal(path, digest, ids, **again, remedy=wishes.remedy)
    try:
        # What someone else's code prints is not what karat says.
        with leaving_in_order(), redirect_stdout(sys.stderr), workshop.open() as own:
            system = own.build(blueprint)
            runner = _runner(blueprint, system, wishes, workshop)
            about = _meta(blueprint, system, runner, wishes) | _inputs(workshop, wishes)
            about |= _origin(queries, wishes)
            # What an object says of itself may be anything; a log that cannot be read is none.
            check_facts(about, blueprint.name)
            meta = _versioned(journal.meta or about | {DIGEST: digest})
            advance(len(journal.done))
            for line in _lines(journal, runner, queries, meta, wishes.latency):
                journal.write(line)
                advance(1)
            failed = runner.tally.failed + sum(failed for _, failed in journal.done)
            journal.finish(all_failed=failed == len(queries))
    except KeyboardInterrupt:
        raise InterruptedSearch(_left(journal, len(queries), workshop)) from None
    except Leaving:
        # Nobody catches what ends karat, so it is said here.
        print(f"karat: {_left(journal, len(queries), workshop)}", file=sys.stderr, flush=True)
        raise
    finally:
        journal.close()
    kept = path
    if journal.path != path.absolute():
        path = path.with_name(journal.path.name)
    share = float(meta["max_failures"])
    blank = sum(not query.text.strip() for query in queries)
    return Searched(
        blueprint.name,
        path,
        len(queries),
        failed,
        share,
        runner.tally,
        blank=blank,
        notes=notes_in(meta),
        earlier=None if path == kept else kept,
    )


def notes_in(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """What the retrievers of a log have to say: settings of theirs that change nothing."""
    own, parts = meta.get("notes"), meta.get("parts")
    inside = parts.values() if isinstance(parts, Mapping) else ()
    return (
        *(str(note) for note in own or () if isinstance(own, list)),
        *(note for part in inside for note in notes_in(part)),
    )


def _left(journal: Journal, calls: int, workshop: Workshop) -> str:
    """What there is after an interruption: of the log, and of what was made for it."""
    vectors = "; vectors that were made are kept" if (workshop.cache / "vectors").is_dir() else ""
    return f"{journal.left(calls)}{vectors}"


def _check(queries: Sequence[Query], path: Path) -> None:
    if path.suffix != ".jsonl":
        raise InputError(
            "a run log ends in .jsonl; write it, then karat convert gives other formats",
            where=str(path),
        )
    if not queries:
        raise InputError("no query is left to ask; check --filter and --limit", where=str(path))


def _runner(blueprint: Blueprint, system: System, wishes: Wishes, workshop: Workshop) -> Runner:
    calls = blueprint.calls
    limits = Limits(
        concurrency=wishes.concurrency or calls.concurrency or system.concurrency,
        batch=calls.batch or system.batch,
        rate=wishes.rate or calls.rate,
        retries=calls.retries if wishes.retries is None else wishes.retries,
    )
    there = None if system.items is None else len(system.items)
    k = blueprint.stages.k or wishes.k
    return Runner(system, k, limits, redact=workshop.redact, there=there)


def _meta(blueprint: Blueprint, system: System, runner: Runner, wishes: Wishes) -> dict[str, Any]:
    """What every line of the log says of the run."""
    most = blueprint.calls.max_failures if wishes.max_failures is None else wishes.max_failures
    meta: dict[str, Any] = {
        "system": blueprint.name,
        "k": runner.k,
        "k_raw": system.depth(runner.k),
        **system.meta,
        "karat_version": __version__,
        "config": blueprint.meaning(),
        "config_digest": blueprint.digest,
        "max_failures": most,
    }
    if runner.limits.batch > 1:
        meta["batch"] = runner.limits.batch
    return meta if wishes.latency else _lasting(meta)


def _origin(queries: Sequence[Query], wishes: Wishes) -> dict[str, Any]:
    """Which queries were asked of which code, as far as that is known."""
    ends = ends_of(query.attributes.get("as_of") for query in queries)
    told = {
        "dataset_version": wishes.dataset_version,
        "as_of_range": None if ends is None else list(ends),
        "code_version": wishes.code_version,
    }
    return {key: value for key, value in told.items() if value is not None}


def _versioned(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The meta with the version of the contract, which nothing else may set, first."""
    return {VERSION_KEY: RUN_LOG_VERSION} | {
        key: value for key, value in meta.items() if key != VERSION_KEY
    }


def _inputs(workshop: Workshop, wishes: Wishes) -> dict[str, Any]:
    """The files that the answers depend on, by name and digest."""
    told: dict[str, Any] = {}
    if workshop.has_corpus:
        told["corpus"] = {"name": workshop.corpus_name, "sha256": workshop.corpus_digest}
    if wishes.queries is not None:
        told["queries"] = {"name": wishes.queries.name, "sha256": wishes.queries.digest()}
    return told


def _lasting(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The meta without what differs from one run to an equal one."""
    return {
        key: _lasting(value) if isinstance(value, Mapping) else value
        for key, value in meta.items()
        if key != "embedding_updates"
    }


def _lines(
    journal: Journal,
    runner: Runner,
    queries: Sequence[Query],
    meta: dict[str, Any],
    latency: bool,
) -> Iterator[bytes]:
    """A line for each query that has none yet, in the order of the queries."""
    rest = queries[len(journal.done) :]
    kept: dict[str, bytes] = {}

    def to_ask() -> Iterator[Query]:
        for query in rest:
            line = journal.kept(query.query_id)
            if line is None:
                yield query
            else:
                kept[query.query_id] = line

    outcomes = runner.outcomes(to_ask())
    ready = next(outcomes, None)
    for query in rest:
        if ready is not None and ready[0] is query:
            yield _line(query, ready[1], meta, runner, latency)
            ready = next(outcomes, None)
        else:
            runner.tally.kept += 1
            yield kept.pop(query.query_id)


def _line(
    query: Query, outcome: Answer | Failed, meta: dict[str, Any], runner: Runner, latency: bool
) -> bytes:
    """A call's line; an answer that no log can hold is a failed call."""
    if isinstance(outcome, Answer):
        try:
            return to_json_line(record_of(query, outcome, meta, latency=latency))
        except (TypeError, ValueError) as error:
            outcome = Failed(runner.redact(f"the answer cannot be logged: {error}"))
            runner.tally.fail(outcome)
    return to_json_line(failed_record(query, outcome.reason, meta))
