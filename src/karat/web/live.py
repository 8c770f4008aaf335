"""The systems of serve's karat.yaml, asked live: built at the first question, closed at the end."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from karat.config import Config, read_config
from karat.errors import CallError, InputError, KaratError, UsageError, unknown
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.protocol import Answer, Query
from karat.retrievers.system import System
from karat.retrievers.workshop import Workshop
from karat.systems import Systems, workshop_of
from karat.web.errors import NotNowError
from karat.web.eval_set import EvalSet, places, read_eval_set_of
from karat.web.hidden import secrets_of
from karat.web.settings import Settings

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LONGEST_TEXT = 2_000
MOST_HITS = 50
_TEXT_SHOWN = 2_000
_ERROR_SHOWN = 500
_MOST_AT_ONCE = 16
# How soon a search that waits for its turn notices that nobody waits for it.
_LOOK_SECONDS = 0.25
# How long to wait at the end for a system that is just being built.
_LAST_BUILD_SECONDS = 2.0
HOW_TO = "karat serve was started without a karat.yaml; start it with one: karat serve karat.yaml"


@dataclass(eq=False)
class Opened:
    """One reading of a karat.yaml, with what was built from it so far."""

    config: Config
    workshop: Workshop
    systems: Systems
    ready: dict[str, System] = field(default_factory=dict)
    turns: dict[str, threading.Semaphore] = field(default_factory=dict)
    building: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, path: Path, settings: Settings) -> Opened:
        config = read_config(path)
        workshop = workshop_of(config, path.parent.absolute())
        # Also what this system does not look up itself: it runs where all of them are.
        workshop.secrets.update(secrets_of(settings))
        return cls(config, workshop, Systems(config, workshop))

    @cached_property
    def eval_set(self) -> EvalSet:
        return read_eval_set_of(self.config)

    def system(self, name: str) -> System:
        """A system, built by whoever asks first while the others wait."""
        if name not in self.config.blueprints:
            raise unknown("system", name, self.config.blueprints)
        if name not in self.ready:
            with self.building:
                if name not in self.ready:
                    system = self.systems[name]
                    self.turns[name] = threading.Semaphore(max(1, system.concurrency))
                    self.ready[name] = system
        return self.ready[name]

    def close(self) -> None:
        """Stop services that were started."""
        waited = self.building.acquire(timeout=_LAST_BUILD_SECONDS)
        try:
            self.systems.__exit__()
        finally:
            if waited:
                self.building.release()


class Live:
    """Systems by name, for searches from any thread; a karat.yaml that changed is read again."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._path = settings, settings.config
        self._lock = threading.Lock()
        self._opened: tuple[tuple[int, int], Opened] | None = None
        self.closed = False
        # Searches under way, by system: one that does not answer holds up no other.
        self._asked: Counter[str] = Counter()
        self._counting = threading.Lock()

    @property
    def configured(self) -> bool:
        """Whether there is a karat.yaml at all."""
        return self._path is not None

    def opened(self) -> Opened:
        """What the karat.yaml says now."""
        if self._path is None:
            raise UsageError(HOW_TO)
        if self.closed:
            raise CallError("the server is ending")
        with self._lock:
            state = _state(self._path)
            if self._opened is None or self._opened[0] != state:
                fresh = Opened.of(self._path, self._settings)
                before, self._opened = self._opened, (state, fresh)
                if before is not None:
                    before[1].close()
            return self._opened[1]

    def close(self) -> None:
        """Stop what was started; nothing is asked any more."""
        self.closed = True
        with self._lock:
            before, self._opened = self._opened, None
        if before is not None:
            before[1].close()

    def document(self) -> dict[str, Any]:
        """Which systems there are; nothing of how they are reached."""
        opened = self.opened()
        built = opened.ready.keys()
        return {
            "config": Path(opened.config.place.file).name,
            "systems": [
                _about(one, name in built) for name, one in opened.config.blueprints.items()
            ],
            "corpus": opened.workshop.has_corpus,
            "queries": len(opened.eval_set.queries),
            "rel": opened.config.conventions.rel,
            "note": opened.eval_set.note,
        }

    def suggestions(self, text: str, limit: int) -> dict[str, Any]:
        """Questions of the eval set to choose from."""
        found, total = self.opened().eval_set.like(text, limit)
        shown = [
            {"query_id": query.query_id, "text": query.text[:LONGEST_TEXT]}
            for query in found
            if query.text.strip()
        ]
        return {"queries": shown, "total": total}

    def search(
        self, name: str, text: str, k: int, gone: threading.Event | None = None
    ) -> dict[str, Any]:
        """What a system finds for a text, with texts and grades; takes as long as it takes.

        A text of the eval set is asked with all that its query says, such as its as_of. Once
        ``gone`` is set, nobody waits for the answer, and a search that has not begun never does.
        """
        if not text.strip():
            raise UsageError("there is no question; type one")
        opened = self.opened()
        known = opened.eval_set.find(text)
        query = Query("", text) if known is None else known
        if name not in opened.config.blueprints:
            raise unknown("system", name, opened.config.blueprints)
        try:
            with self._counted(name):
                system = opened.system(name)
                answer, took = _asked(system, query, k, opened.turns[name], gone)
        except NotNowError:
            raise
        except Exception as error:
            # What a system raises may be anyone's: it is told in a sentence, without secrets.
            raise CallError(_sentence(error, opened.workshop)) from None
        return {
            "system": name,
            "query_id": None if known is None else known.query_id,
            "latency_ms": took,
            "rewritten": answer.rewritten,
            "source": answer.source,
            **_found(system, answer, k, opened, known),
            "error": None,
        }

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        """One of the searches of a system, of which there are only so many at once."""
        with self._counting:
            if self._asked[name] >= _MOST_AT_ONCE:
                raise NotNowError(
                    f"{name} has {_MOST_AT_ONCE} questions to answer yet; try again in a moment"
                )
            self._asked[name] += 1
        try:
            yield
        finally:
            with self._counting:
                self._asked[name] -= 1


def _asked(
    system: System, query: Query, k: int, turns: threading.Semaphore, gone: threading.Event | None
) -> tuple[Answer, float]:
    """The answer of a system when it is its turn, and how many milliseconds that took."""
    while not turns.acquire(timeout=_LOOK_SECONDS):
        if gone is not None and gone.is_set():
            raise CallError("whoever asked has left")
    try:
        start = time.perf_counter()
        answer = system.find([query], k)[0]
        return answer, (time.perf_counter() - start) * 1000
    finally:
        turns.release()


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(error.strerror or str(error), where=path.name) from None
    return found.st_mtime_ns, found.st_size


def _about(blueprint: Blueprint, built: bool) -> dict[str, Any]:
    return {
        "name": blueprint.name,
        "retriever": blueprint.kind,
        "live": blueprint.live,
        "k": blueprint.stages.k,
        "built": built,
    }


def _found(
    system: System, answer: Answer, k: int, opened: Opened, known: Query | None
) -> dict[str, Any]:
    gold = opened.eval_set.gold_of(known)
    hits, ranks = [], dict[str, int]()
    seen: set[str] = set()
    for rank, hit in enumerate(answer.hits[:k], 1):
        key = opened.eval_set.key(hit)
        ranks.setdefault(key, rank)
        text = hit.text if system.items is None else system.items.text(hit)
        hits.append(
            {
                "item_id": hit.item_id,
                "score": _finite(hit.score),
                "rank": rank,
                "text": None if text is None else shown(text[:_TEXT_SHOWN]),
                "cut": text is not None and len(text) > _TEXT_SHOWN,
                # An item that comes again earns nothing.
                "grade": None if hit.item_id in seen else gold.get(key),
            }
        )
        seen.add(hit.item_id)
    return {"hits": hits, "gold": places(gold, ranks, opened.config.conventions.rel)}


def shown(text: str) -> str:
    r"""A text without the control characters that could upset a page.

    >>> shown("a\x00b\tc")
    'a�b\tc'
    """
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def _finite(score: float | None) -> float | None:
    number = None if score is None else float(score)
    return number if number is not None and abs(number) < float("inf") else None


def _sentence(error: Exception, workshop: Workshop) -> str:
    told = str(error) if isinstance(error, KaratError) else f"{type(error).__name__}: {error}"
    return workshop.redact(" ".join(told.split()))[:_ERROR_SHOWN]
