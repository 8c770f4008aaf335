"""Search: systems are built, asked every query, and logged; an interrupted log is resumed.

A call that fails for good is an outcome too: a FailedCall.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from karat.data.columns import Source, date_range
from karat.data.tables import Corpus, Queries
from karat.errors import CallError, InputError, UsageError
from karat.formats.field_mapping import Fields
from karat.formats.files import safe_file_name
from karat.formats.readers import load
from karat.formats.runlog import RUN_LOG_VERSION, VERSION_KEY, check_facts
from karat.formats.settings import Place
from karat.jobs.cache import CACHE_FOLDER
from karat.jobs.calls import RateLimit, Retries
from karat.jobs.journal import RESUME
from karat.jobs.signals import StoppedBySignal, stop_on_signals
from karat.parallel import in_order
from karat.retrieve.build_context import BuildContext
from karat.retrieve.index_cache import StoredCorpus, open_corpus
from karat.retrieve.protocol import Answer, Query, queries_from, shares
from karat.retrieve.run_log import DIGEST, RunLog, failed_record, notes_in, record_of, to_json_line
from karat.retrieve.system import DEFAULT_K, SearchSystem, build_system
from karat.retrieve.system_config import SystemConfig, parse_systems, run_digest
from karat.version import __version__

SYSTEM_PLACEHOLDER = "{system}"
# How many reasons of failed calls a summary lists.
_REASONS = 5


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed for good, and why."""

    reason: str


@dataclass
class CallTally:
    """Counts of calls and their outcomes, for the summary."""

    asked: int = 0
    failed: int = 0
    retried: int = 0
    short: int = 0
    unscored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def note(self, outcome: Answer | FailedCall, k: int) -> None:
        """Count one call."""
        self.asked += 1
        if isinstance(outcome, FailedCall):
            self.fail(outcome)
        else:
            self.short += len(outcome.hits) < k
            self.unscored += any(hit.score is None for hit in outcome.hits)

    def fail(self, outcome: FailedCall) -> None:
        """Count one failure with its reason."""
        self.failed += 1
        self.reasons[outcome.reason] += 1


@dataclass(eq=False)
class CallRunner:
    """Asks every query that it is given; ``find`` returns one answer for each of a batch.

    ``corpus_size`` is the number of items that can be found, where that is known.
    """

    find: Callable[[Sequence[Query], int], list[Answer]]
    k: int
    concurrency: int = 1
    batch: int = 1
    rate: float | None = None
    retries: int = 3
    redact: Callable[[str], str] = str
    corpus_size: int | None = None
    tally: CallTally = field(default_factory=CallTally)
    _stop: threading.Event = field(default_factory=threading.Event)
    _rate_limit: RateLimit = field(init=False)
    _retries: Retries = field(init=False)

    def __post_init__(self) -> None:
        self._rate_limit = RateLimit(self.rate, self._stop)
        self._retries = Retries(self.retries, self._count_retry, self._stop)

    def outcomes(self, queries: Iterable[Query]) -> Iterator[tuple[Query, Answer | FailedCall]]:
        """Yield each query with its outcome, in the order given."""
        # A list of the whole corpus cannot be longer.
        full = self.k if self.corpus_size is None else min(self.k, self.corpus_size)
        remaining = iter(queries)
        batches = iter(lambda: list(islice(remaining, self.batch)), [])
        for batch, outcomes in in_order(
            self._call, batches, concurrency=self.concurrency, stop=self._stop
        ):
            for query, outcome in zip(batch, outcomes, strict=True):
                self.tally.note(outcome, full)
                yield query, outcome

    def _call(self, batch: Sequence[Query]) -> list[Answer | FailedCall]:
        """Ask a batch; if it fails, ask query by query, so that only the guilty ones fail."""
        try:
            return list(self._retries.call(lambda: self._timed(batch)))
        except CallError as error:
            if len(batch) == 1:
                return [FailedCall(self.redact(" ".join(str(error).split())))]
        return [outcome for query in batch for outcome in self._call([query])]

    def _timed(self, batch: Sequence[Query]) -> list[Answer]:
        """Return the answers with their share of the time that the call took."""
        self._rate_limit.wait()
        start = time.perf_counter()
        answers = self.find(batch, self.k)
        elapsed = (time.perf_counter() - start) * 1000
        useful = elapsed - sum(answer.aside for answer in answers)
        for answer, ms in zip(answers, shares(useful, answers), strict=True):
            answer.latency["total"] = ms
        return answers

    def _count_retry(self, error: CallError, seconds: float) -> None:
        self.tally.retried += 1


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search; None leaves a limit to the system's own settings.

    ``k`` is for systems that set none. ``resume`` continues an interrupted log and retries the
    failed calls of a finished one; ``restart`` throws an interrupted log away. ``cache`` is where
    indexes and vectors are kept, beside the karat.yaml; None keeps none. ``remedy`` is how
    the caller resumes a search that was stopped. ``latency=False`` leaves out what differs
    between equal runs. The versions and the source of the queries are for the log.

    >>> options = SearchOptions(concurrency=4, retries=0)
    >>> systems = {"bm25": {"retriever": "bm25"}}
    >>> search(systems, "queries.jsonl", "corpus.jsonl", options=options)[0].failed
    0
    """

    k: int = DEFAULT_K
    concurrency: int | None = None
    rate: float | None = None
    retries: int | None = None
    max_failures: float | None = None
    resume: bool = False
    restart: bool = False
    cache: str | Path | None = CACHE_FOLDER
    remedy: str = RESUME
    latency: bool = True
    dataset_version: str | None = None
    code_version: str | None = None
    queries: Source | None = None


@dataclass(frozen=True, eq=False)
class SearchResult:
    """A finished log, and the outcomes of its calls.

    ``earlier`` is the log with answers that this one, in which every call failed, did not replace.

    >>> (result,) = search({"bm25": {"retriever": "bm25"}}, "queries.jsonl", "corpus.jsonl")
    >>> result.calls, result.path.as_posix()
    (12, 'runs/bm25.jsonl')
    """

    system: str
    path: Path
    calls: int
    failed: int
    max_failures: float
    tally: CallTally = field(default_factory=CallTally)
    reused: bool = False
    blank: int = 0
    notes: tuple[str, ...] = ()
    earlier: Path | None = None

    @property
    def all_failed(self) -> bool:
        """Whether no call succeeded, so that nothing can be measured."""
        return 0 < self.calls == self.failed

    @property
    def why_all_failed(self) -> str:
        """The most common reason, and where the log is."""
        [(reason, _)] = self.tally.reasons.most_common(1) or [("the log has the reasons", 0)]
        calls = "the only call" if self.calls == 1 else f"all {self.calls:,} calls"
        unchanged = "" if self.earlier is None else f"; {self.earlier} is unchanged"
        return f"{self.system}: {calls} failed ({reason}); the log is {self.path}{unchanged}"

    @property
    def partial(self) -> bool:
        """Whether more calls failed than ``max_failures`` allows."""
        return self.calls > 0 and self.failed / self.calls > self.max_failures

    def to_dict(self) -> dict[str, Any]:
        """Return the outcomes as plain data."""
        tally = self.tally
        return {
            "system": self.system,
            "log": str(self.path),
            "calls": self.calls,
            "failed": self.failed,
            "partial": self.partial,
            "reused": self.reused,
            "asked": tally.asked,
            "retried": tally.retried,
            "fewer_than_k": tally.short,
            "without_score": tally.unscored,
            "without_text": self.blank,
            "reasons": dict(tally.reasons.most_common()),
            "notes": list(self.notes),
        }

    def summary(self) -> list[str]:
        """Return the outcomes as a few lines of text."""
        tally = self.tally
        earlier = self.calls - tally.asked
        facts = [f"{self.calls:,} calls"]
        if self.reused:
            facts.append("log reused")
        elif earlier:
            facts.append(f"{earlier:,} from an earlier search")
        counts = (
            (self.failed, "failed"),
            (tally.retried, "retried"),
            (tally.short, "with fewer hits than k"),
            (tally.unscored, "without scores"),
            (self.blank, "of queries without text"),
        )
        facts += [f"{number:,} {what}" for number, what in counts if number]
        lines = [f"{self.system}: {', '.join(facts)} → {self.path}"]
        lines += [f"  {note}" for note in self.notes]
        reasons = tally.reasons.most_common(_REASONS)
        lines += [f"  {count:,} × {reason}" for reason, count in reasons]
        if (others := len(tally.reasons) - _REASONS) > 0:
            lines.append(f"  and {others:,} other reasons, which the log has")
        return lines


class ProgressBar(Protocol):
    """Follows the building of one system, then its calls."""

    def build(self, what: str, done: int, total: int) -> None: ...
    def advance(self, calls: int) -> None: ...


# Opens a bar for a system's name and its number of calls.
OpenBar = Callable[[str, int], AbstractContextManager[ProgressBar]]


class _NoBar:
    def build(self, what: str, done: int, total: int) -> None: ...
    def advance(self, calls: int) -> None: ...


def no_bar(name: str, calls: int) -> AbstractContextManager[ProgressBar]:
    """Show no progress."""
    return nullcontext(_NoBar())


def search(
    systems: Mapping[str, Any],
    queries: Queries | Mapping[str, Any] | str | Path,
    corpus: Corpus | Mapping[str, Any] | str | Path | None = None,
    *,
    logs: str | Path = "runs/{system}.jsonl",
    folder: str | Path = ".",
    options: SearchOptions | None = None,
    open_bar: OpenBar = no_bar,
) -> list[SearchResult]:
    """Ask systems every query and write one run log per system.

    A system is a mapping as in a karat.yaml (``{"retriever": "bm25"}``), a callable from a text
    and k to a ranked list, or an object with ``search(queries, k)``. ``{system}`` in ``logs``
    stands for its name; file names in settings are relative to ``folder``.

    >>> (result,) = search({"bm25": {"retriever": "bm25"}}, "queries.jsonl", "corpus.jsonl")
    >>> result.calls, result.failed
    (12, 0)
    """
    table: Queries = load("queries", queries, fields=Fields())
    objects = {name: system for name, system in systems.items() if not isinstance(system, Mapping)}
    specs = {
        name: {"retriever": "python", "call": name} if name in objects else system
        for name, system in systems.items()
    }
    configs = list(parse_systems(specs, Place("systems")).values())
    options = replace(options or SearchOptions(), queries=table.source)
    place = Path(folder)
    cache = None if options.cache is None else place / options.cache
    context = BuildContext(
        corpus=None if corpus is None else lambda: _opened(corpus, cache),
        folder=place,
        cache=cache,
        objects=objects,
    )
    paths = log_paths(configs, str(logs))
    return [
        search_system(
            config,
            context,
            queries_from(table),
            paths[config.name],
            options=options,
            open_bar=open_bar,
        )
        for config in configs
    ]


def _opened(corpus: Any, cache: Path | None) -> Corpus | StoredCorpus:
    if isinstance(corpus, str | os.PathLike):
        return open_corpus(os.fspath(corpus), cache, fields=Fields())
    table: Corpus = load("corpus", corpus, fields=Fields())
    return table


def log_paths(configs: Sequence[SystemConfig], template: str) -> dict[str, Path]:
    """Return each system's log; ``{system}`` in the template stands for the system's name."""
    names = ", ".join(config.name for config in configs)
    if SYSTEM_PLACEHOLDER not in template and len(configs) > 1:
        raise UsageError(
            f"-o {template} is one file for {len(configs)} systems ({names}); "
            "put {system} into its name, or choose one with --system"
        )
    paths = {
        config.name: Path(template.replace(SYSTEM_PLACEHOLDER, safe_file_name(config.name)))
        for config in configs
    }
    if len(set(paths.values())) < len(paths):
        raise UsageError(f"two of {names} would have logs of the same name; rename one of them")
    return paths


def refuse_all_failed(results: Sequence[SearchResult]) -> None:
    """Raise CallError if there is a system of which no call succeeded."""
    if reasons := [result.why_all_failed for result in results if result.all_failed]:
        raise CallError("; ".join(reasons))


def is_reusable(config: SystemConfig) -> bool:
    """Return whether an equal digest means equal answers.

    A live system can change unseen, so it is asked again unless its index_version says what it is.
    """
    return not config.live or config.calls.index_version is not None


def search_system(
    config: SystemConfig,
    context: BuildContext,
    queries: Sequence[Query],
    path: Path,
    *,
    options: SearchOptions | None = None,
    digest: str | None = None,
    open_bar: OpenBar = no_bar,
) -> SearchResult:
    """Ask one system every query and write its log."""
    options = options or SearchOptions()
    if path.suffix != ".jsonl":
        raise InputError(
            "a run log ends in .jsonl; write it, then convert it with karat convert",
            where=str(path),
        )
    if not queries:
        raise InputError(
            "no query is left to search for; check --filter and --limit", where=str(path)
        )
    # User code may change the current folder.
    with chdir(Path.cwd()), open_bar(config.name, len(queries)) as bar:
        digest = digest or run_digest(config, context, queries, k=options.k)
        log = RunLog(
            path,
            digest,
            [query.query_id for query in queries],
            resume=options.resume,
            restart=options.restart,
            remedy=options.remedy,
        )
        try:
            # What user code prints must not mix with karat's output.
            with stop_on_signals(), redirect_stdout(sys.stderr), context.open() as opened:
                system = build_system(config, replace(opened, progress=bar.build))
                runner = call_runner(system.find, config, system, options, context)
                meta = _meta(config, system, runner, options, context, queries)
                # An object's own meta may hold anything, and every log must be readable.
                check_facts(meta, config.name)
                meta = log.meta or meta | {DIGEST: digest}
                # Nothing else may set the format's version, which comes first.
                meta = {VERSION_KEY: RUN_LOG_VERSION} | meta | {VERSION_KEY: RUN_LOG_VERSION}
                bar.advance(len(log.done))
                for line in _lines(log, runner, queries, meta, options.latency):
                    log.write(line)
                    bar.advance(1)
                failed = runner.tally.failed + sum(failed for _, failed in log.done)
                log.finish(all_failed=failed == len(queries))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(log.interrupted(len(queries))) from None
        except StoppedBySignal:
            # Nothing above catches it, so the message is printed here.
            message = f"karat: {log.interrupted(len(queries))}"
            print(message, file=sys.stderr, flush=True)
            raise
        finally:
            log.close()
    written = path if log.path == path.absolute() else path.with_name(log.path.name)
    return SearchResult(
        config.name,
        written,
        len(queries),
        failed,
        float(meta["max_failures"]),
        runner.tally,
        blank=sum(not query.text.strip() for query in queries),
        notes=notes_in(meta),
        earlier=None if written == path else path,
    )


def call_runner(
    find: Callable[[Sequence[Query], int], list[Answer]],
    config: SystemConfig,
    system: SearchSystem,
    options: SearchOptions,
    context: BuildContext,
) -> CallRunner:
    """Return the runner of a system, with limits by the options, its settings or its retriever."""
    calls = config.calls
    return CallRunner(
        find,
        config.stages.k or options.k,
        concurrency=options.concurrency or calls.concurrency or system.concurrency,
        batch=calls.batch or system.batch,
        rate=options.rate or calls.rate,
        retries=calls.retries if options.retries is None else options.retries,
        redact=context.redact,
        corpus_size=None if system.items is None else len(system.items),
    )


def _meta(
    config: SystemConfig,
    system: SearchSystem,
    runner: CallRunner,
    options: SearchOptions,
    context: BuildContext,
    queries: Sequence[Query],
) -> dict[str, Any]:
    """Return what every line of the log says of the run."""
    limit = config.calls.max_failures if options.max_failures is None else options.max_failures
    meta: dict[str, Any] = {
        "system": config.name,
        "k": runner.k,
        "k_raw": system.depth(runner.k),
        **system.meta,
        "karat_version": __version__,
        "config": config.meaning(),
        "config_digest": config.digest,
        "max_failures": limit,
    }
    if runner.batch > 1:
        meta["batch"] = runner.batch
    if not options.latency:
        meta = _reproducible(meta)
    for kind, source in (("corpus", context.corpus_source), ("queries", options.queries)):
        if source is not None:
            meta[kind] = {"name": source.name, "sha256": source.digest()}
    ends = date_range(query.attributes.get("as_of") for query in queries)
    versions = {
        "dataset_version": options.dataset_version,
        "as_of_range": None if ends is None else list(ends),
        "code_version": options.code_version,
    }
    return meta | {key: value for key, value in versions.items() if value is not None}


def _reproducible(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta without what differs between equal runs."""
    return {
        key: _reproducible(value) if isinstance(value, Mapping) else value
        for key, value in meta.items()
        if key != "embedding_updates"
    }


def _lines(
    log: RunLog, runner: CallRunner, queries: Sequence[Query], meta: dict[str, Any], latency: bool
) -> Iterator[bytes]:
    """Yield a line for each query that has none yet, in the order of the queries."""
    remaining = queries[len(log.done) :]
    outcomes = runner.outcomes(query for query in remaining if query.query_id not in log.kept)
    for query in remaining:
        kept_line = log.kept.get(query.query_id)
        yield kept_line or _line(query, next(outcomes)[1], meta, runner, latency)


def _line(
    query: Query,
    outcome: Answer | FailedCall,
    meta: dict[str, Any],
    runner: CallRunner,
    latency: bool,
) -> bytes:
    """Return a call's line; an answer that no log can hold is a failed call."""
    if isinstance(outcome, Answer):
        try:
            return to_json_line(record_of(query, outcome, meta, latency=latency))
        except (TypeError, ValueError) as error:
            outcome = FailedCall(runner.redact(f"the answer cannot be logged: {error}"))
            runner.tally.fail(outcome)
    return to_json_line(failed_record(query, outcome.reason, meta))
