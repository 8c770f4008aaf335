"""Code that is not karat's: loaded by name, called within a time limit, its results read as hits.

A call cannot be stopped from outside. One that takes too long is left behind in its thread, and
the next call gets another thread.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from inspect import iscoroutine
from itertools import islice
from math import isfinite, nan
from numbers import Integral
from pathlib import Path
from reprlib import repr as shortened
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

from karat.data.columns import ITEM_NAMES, NUL_IN_ID
from karat.errors import CallError, InputError, KaratError, UsageError, missing_extra
from karat.parallel import DaemonThreads
from karat.retrieve.protocol import Hit, Hits

T = TypeVar("T")
# Makes the context that code runs in.
Around = Callable[[], AbstractContextManager[Any]]

ABSENT = "unknown"
EXPECTED = "a list of ids, (id, score) pairs, mappings with item_id and score, or Hit objects"
_LONGEST = 300
_TEXTS = ("doc_id", "version", "source", "text")
# Errors of many libraries (httpx, requests, openai, redis, …) whose cause may pass by itself.
_PASSING = frozenset(
    (
        "APIConnectionError",
        "ConnectionError",
        "RateLimitError",
        "Timeout",
        "TimeoutError",
        "TransportError",
    )
)


def load_callable(name: str, folder: Path) -> Callable[..., Any]:
    """Return the callable that ``module:callable`` or ``file.py:callable`` names."""
    loaded: Callable[..., Any] = load_object(name, folder)
    if not callable(loaded):
        raise UsageError(f"{name} is {type(loaded).__name__}, which cannot be called")
    return loaded


def load_object(name: str, folder: Path) -> Any:
    """Return what a name stands for; files are relative to the folder of the karat.yaml."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise UsageError(f"{name!r} names no callable; write module:callable or file.py:callable")
    # Modules beside the karat.yaml can be imported, also later and by the code loaded here.
    beside = str(folder.resolve())
    if beside not in sys.path:
        sys.path.append(beside)
    module = _module_in(folder / place) if place.endswith(".py") else _module_named(place)
    loaded: Any = module
    for step in attribute.split("."):
        if not hasattr(loaded, step):
            public = [each for each in vars(module) if not each.startswith("_")]
            raise UsageError(f"{place} has no {attribute!r}; it has {', '.join(public[:10])}")
        loaded = getattr(loaded, step)
    return loaded


def source_of(name: str, folder: Path) -> Path:
    """Return the file of a name that is loaded."""
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        return folder / place
    source = getattr(sys.modules[place], "__file__", None)
    if source is None:
        raise UsageError(f"module {place} has no file; name one that has")
    return Path(source)


def _module_in(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("no such file; check the path", where=str(path))
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"karat_file_{digest}", path)
    if spec is None or spec.loader is None:
        raise InputError("cannot be loaded as Python", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"failed to load: {error_line(error)}", where=str(path)) from error
    return module


def _module_named(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"no module {error.name!r}; is it installed or beside karat.yaml?"
        ) from None
    except Exception as error:
        raise UsageError(f"module {name} failed to load: {error_line(error)}") from error


def import_library(name: str, feature: str, package: str, extra: str) -> Any:
    """Return an optional library; if it is missing, raise with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise missing_extra(feature, package, extra) from None


def library_versions(*modules: str) -> dict[str, str]:
    """Return the version of each library by import name; scores may depend on them."""
    versions = {}
    for module in modules:
        try:
            versions[module] = version(module)
        except PackageNotFoundError:
            # Builds for other hardware, such as onnxruntime-gpu, are installed under other names.
            names = packages_distributions().get(module)
            versions[module] = version(names[0]) if names else ABSENT
    return versions


def takes_first(call: Callable[..., Any], kind: type) -> bool:
    """Return whether the first argument of a callable is annotated as this type."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    annotation = parameters[0].annotation
    return annotation is kind or str(annotation).rpartition(".")[2] == kind.__name__


def fits(call: Callable[..., Any], positional: Sequence[Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether a callable takes these arguments, as far as its signature tells."""
    try:
        inspect.signature(call).bind(*positional, **arguments)
    except ValueError:
        return True  # nobody can tell; the call itself will
    except TypeError:
        return False
    return True


def parameters(call: Callable[..., Any]) -> str:
    """Return the parameters of a callable as it declares them."""
    return str(inspect.signature(call).replace(return_annotation=inspect.Signature.empty))


def error_line(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """Return the type and message of an exception in one line, cut once secrets are replaced."""
    try:
        message = str(error)
    except Exception:
        message = ""
    text = " ".join(redact(message).split())
    return f"{type(error).__name__}: {text[:_LONGEST]}" if text else type(error).__name__


def may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed later: no answer, or none in time."""
    return any(kind.__name__ in _PASSING for kind in type(error).__mro__)


class UserCode:
    """Runs code that is not karat's; ``name`` is what messages call it.

    As long as calls come one at a time and in time, all of them run in one thread, the one that
    loaded the code: some libraries' objects work in no other. ``again`` says that a call that
    took too long is worth a retry.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        redact: Callable[[str], str],
        *,
        again: bool = False,
        around: Around = nullcontext,
    ) -> None:
        self.name = name
        self.seconds = seconds
        self.redact = redact
        self._again = again
        self._around = around
        self._threads = DaemonThreads("karat-user-code")
        weakref.finalize(self, self._threads.stop)

    def load(self, work: Callable[[], T], *, done: str = "made") -> T:
        """Do what comes before the first call, without a time limit; ``done`` is for messages."""
        try:
            return self._begin(work).result()
        except (KaratError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise UsageError(
                f"{self.name} failed while it was {done}: {error_line(error, self.redact)}"
            ) from error

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of a call; whatever it raises except Ctrl-C is a CallError."""
        future = self._begin(work)
        try:
            error = future.exception(self.seconds)
        except TimeoutError:
            raise CallError(
                f"{self.name} took longer than {self.seconds:g} s; find out why, or raise timeout",
                may_pass=self._again,
            ) from None
        if error is None:
            return future.result()
        if isinstance(error, KeyboardInterrupt):
            raise error
        if isinstance(error, CallError):
            raise error.saying(self.redact(str(error))) from error
        message = f"{self.name} raised {error_line(error, self.redact)}"
        raise CallError(message, may_pass=may_pass(error)) from error

    def _begin(self, work: Callable[[], T]) -> Future[T]:
        around = self._around

        def inside() -> T:
            with around():
                return work()

        return self._threads.begin(inside)


def hits_from(returned: Any, k: int, name: str) -> Hits:
    """Return the first k hits of what code returned, in its order; ``{id: score}`` by score.

    ``name`` is what messages call the code.

    >>> [hit.item_id for hit in hits_from({"a": 0.2, "b": 0.9}, 10, "search")]
    ['b', 'a']
    """
    if isinstance(returned, Mapping):
        pairs = [
            Hit(id_of(item, name), score_of(score, item, name)) for item, score in returned.items()
        ]
        return sorted(pairs, key=lambda hit: -(hit.score or 0.0))[:k]
    _refuse_unranked(returned, name)
    return [_hit(value, name) for value in islice(returned, k)]


def id_of(value: Any, name: str) -> str:
    """Return an id as text; whole numbers are spelled."""
    if isinstance(value, str) and "\0" in value:
        raise CallError(f"{name} returned an id that {NUL_IN_ID}")
    if isinstance(value, str) and value:
        return str(value)
    if isinstance(value, UUID) or (isinstance(value, Integral) and not isinstance(value, bool)):
        return str(value)
    raise CallError(f"{name} returned the id {shortened(value)}; ids must be text or whole numbers")


def text_of(value: Any) -> str | None:
    """Return a version, a document's id or the like as text; a date in ISO format."""
    if value is None:
        return None
    return value.isoformat() if isinstance(value, date) else str(value)


def _refuse_unranked(returned: Any, name: str) -> None:
    """Refuse what is no ranked list, although some of it can be iterated."""
    if iscoroutine(returned):
        returned.close()
        raise CallError(f"{name} is async; wrap it in a function that calls asyncio.run")
    if isinstance(returned, Set):
        raise CallError(f"{name} returned a set, which has no order; return a list")
    table = hasattr(returned, "columns")
    if table or isinstance(returned, str | bytes | Hit) or not isinstance(returned, Iterable):
        shown = type(returned).__name__ if table else shortened(returned)
        raise CallError(f"{name} returned {shown}; {EXPECTED} is expected")


def _hit(value: Any, name: str) -> Hit:
    if isinstance(value, Hit):
        hit = value
    elif isinstance(value, Mapping):
        hit = _hit_from_mapping(value, name)
    elif isinstance(value, tuple | list) and len(value) == 2:
        hit = Hit(value[0], score_of(value[1], value[0], name))
    elif isinstance(value, str | UUID | Integral):
        hit = Hit(id_of(value, name))
    else:
        raise CallError(f"{name} returned {shortened(value)} as a hit; {EXPECTED} is expected")
    item = hit.item_id
    fields: dict[str, Any] = {key: text_of(getattr(hit, key)) for key in _TEXTS}
    for keys, read in ((("score", "similarity"), score_of), (("start", "end"), _position)):
        for key in keys:
            value = getattr(hit, key)
            fields[key] = None if value is None else read(value, item, name)
    return Hit(id_of(item, name), **fields)


def _hit_from_mapping(fields: Mapping[Any, Any], name: str) -> Hit:
    """Return the fields of a mapping as they are."""
    item = next((fields[key] for key in ITEM_NAMES if fields.get(key) is not None), None)
    if item is None:
        raise CallError(
            f"{name} returned a hit without an id: its keys are {shortened(list(fields))}; "
            f"one of {', '.join(ITEM_NAMES)} is expected"
        )
    values: dict[str, Any] = {key: fields.get(key) for key in Hit._fields if key != "item_id"}
    if values["version"] is None:
        values["version"] = fields.get("doc_version")
    return Hit(item, **values)


def _position(value: Any, item: Any, name: str) -> int:
    """Return where a chunk begins or ends in its document."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    raise CallError(
        f"{name} returned {shortened(value)} as a place in the document of item {item!r}; "
        "start and end must be whole numbers from 0"
    )


def finite_number(value: Any) -> float | None:
    """Return a finite number; None for anything else, also for text that spells one."""
    try:
        number = nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def score_of(score: Any, item: Any, name: str) -> float:
    """Return a score as a finite number."""
    number = finite_number(score)
    if number is None:
        raise CallError(
            f"{name} returned the score {shortened(score)} for item {item!r}; "
            "a finite number is expected"
        )
    return number
