"""A callable of the user's: a text and k in, a ranked list out; or an object that searches.

An object with ``search(queries, k)`` is given whole batches and returns a Run.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from pydantic import Field, model_validator

from karat.errors import CallError, UsageError
from karat.formats.forms import Form, refused
from karat.retrievers.callables import load_object, takes
from karat.retrievers.foreign import Foreign
from karat.retrievers.forms import Text
from karat.retrievers.protocol import Answer, Finder, Hit, Hits, Query
from karat.retrievers.returned import hits_of
from karat.retrievers.secrets import literal_inside
from karat.retrievers.workshop import Workshop
from karat.tables import Queries, Run

# What an object that searches for many queries at once is given at a time.
_BATCH = 32
_OPTIONAL = ("score", "doc_id", "version", "source", "similarity", "start", "end")


class Options(Form):
    """Which callable, and what it is told besides the query."""

    call: Text = Field(description="module:callable or file.py:callable")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="a mapping of further arguments for the callable, by their names",
    )

    @model_validator(mode="after")
    def _agree(self) -> Options:
        refuse_literals(self.options)
        return self


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Finder:
    """Whatever the name stands for, as something that finds."""
    foreign = Foreign(options.call, workshop.timeout, workshop.redact)
    more = expanded(options.options, workshop)
    found = foreign.load(lambda: load_object(options.call, workshop.folder))
    call, more = _settled(found, more, foreign)
    search = getattr(call, "search", None)
    asked = call if search is None else search
    if not callable(asked):
        raise UsageError(
            f"{options.call} is {type(call).__name__}, which can neither be called nor searched"
        )
    meta = _told_of(call, options.call)
    one_by_one = search is None or takes(search, str) or takes(search, Query)
    if one_by_one and not takes(asked, Queries):
        return Calls(asked, more, foreign, meta)
    return Batches(asked, more, foreign, meta)


def refuse_literals(options: Mapping[str, Any]) -> None:
    """Refuse a key or a password that stands in the file itself."""
    why = literal_inside(options, "options")
    if why is not None:
        raise refused(why)


def expanded(value: Any, workshop: Workshop) -> Any:
    """A setting with each ``${NAME}`` in it replaced by that environment variable."""
    if isinstance(value, str):
        return workshop.expand(value)
    if isinstance(value, list):
        return [expanded(one, workshop) for one in value]
    if isinstance(value, dict):
        return {key: expanded(one, workshop) for key, one in value.items()}
    return value


def made_by(found: Any, more: Mapping[str, Any], foreign: Foreign) -> Any:
    """What a class or a function without required arguments makes."""
    if not _fits(found, (), more):
        wanted = f"take {', '.join(more)} and need nothing else" if more else "need no arguments"
        raise UsageError(f"{foreign.name} takes {_parameters(found)}; it must {wanted}")
    return foreign.load(lambda: found(**more))


def _settled(
    found: Any, more: Mapping[str, Any], foreign: Foreign
) -> tuple[Any, Mapping[str, Any]]:
    """The callable or object to ask, and the arguments that are left for it."""
    if inspect.isclass(found):
        return made_by(found, more, foreign), {}
    if hasattr(found, "search") or not callable(found):
        if more:
            raise UsageError(f"{foreign.name} is made already; leave out options")
        return found, {}
    if _fits(found, ("", 1), more) or _fits(found, ("",), {**more, "k": 1}):
        return found, more
    if _fits(found, (), more):
        return made_by(found, more, foreign), {}
    told = "".join(f", {name}" for name in more)
    raise UsageError(
        f"{foreign.name} takes {_parameters(found)}; it must take (text, k{told}), "
        "or make what does"
    )


def _fits(call: Callable[..., Any], given: Sequence[Any], more: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(call).bind(*given, **more)
    except ValueError:
        return True  # nobody can tell; the call itself will
    except TypeError:
        return False
    return True


def _parameters(call: Callable[..., Any]) -> str:
    return str(inspect.signature(call).replace(return_annotation=inspect.Signature.empty))


def _told_of(found: Any, name: str) -> dict[str, Any]:
    """What the log says: the name, and what the object's own ``meta`` holds."""
    own = getattr(found, "meta", None)
    if not isinstance(own, Mapping):
        return {"call": name}
    try:
        told: dict[str, Any] = json.loads(json.dumps(dict(own), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} has a meta that JSON cannot hold: {error}") from None
    return {"call": name, **told}


class Calls:
    """Asks for one query at a time."""

    batch = 1
    concurrency = 1
    deep = False

    def __init__(
        self,
        call: Callable[..., Any],
        more: Mapping[str, Any],
        foreign: Foreign,
        meta: Mapping[str, Any],
    ) -> None:
        if not _fits(call, ("", 1), more) and not _fits(call, ("",), {**more, "k": 1}):
            raise UsageError(f"{foreign.name} takes {_parameters(call)}; it must take (text, k)")
        self.meta = meta
        self._call = call
        self._more = dict(more)
        self._foreign = foreign
        self._whole = takes(call, Query)
        self._by_place = _fits(call, ("", 1), more)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """What the callable returns for each, cut at k."""
        return [Answer(self._foreign.call(self._asking(query, k))) for query in queries]

    def _asking(self, query: Query, k: int) -> Callable[[], Hits]:
        asked = query if self._whole else query.text

        # A generator does its work while it is read, so that counts as the call too.
        def ask() -> Hits:
            if self._by_place:
                returned = self._call(asked, k, **self._more)
            else:
                returned = self._call(asked, k=k, **self._more)
            return hits_of(returned, k, self._foreign.name)

        return ask


class Batches:
    """Asks for many queries at a time: a table of them in, a run out."""

    batch = _BATCH
    concurrency = 1
    deep = False

    def __init__(
        self,
        search: Callable[..., Any],
        more: Mapping[str, Any],
        foreign: Foreign,
        meta: Mapping[str, Any],
    ) -> None:
        self.meta = meta
        self._search = search
        self._more = dict(more)
        self._foreign = foreign

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """The run's list for each query; a call that failed in the run fails here."""
        table = Queries.from_dict(
            {query.query_id: {"text": query.text, **query.attributes} for query in queries}
        )
        return self._foreign.call(lambda: self._answers(table, k))

    def _answers(self, table: Queries, k: int) -> list[Answer]:
        name = self._foreign.name
        run = self._search(table, k, **self._more)
        if not isinstance(run, Run):
            raise CallError(
                f"{name}'s search returned {type(run).__name__} instead of a karat Run; "
                "a search(text: str, k) must say that it takes a str"
            )
        run = run.at("final")
        _refuse_failed(run, name)
        lists: dict[str, Hits] = {query: [] for query in table.frame["query_id"]}
        for row in _ranked(run).iter_rows(named=True):
            if row["query_id"] not in lists:
                raise CallError(
                    f"{name} returned hits for query {row['query_id']!r}, which was not asked"
                )
            told = {key: row.get(key) for key in _OPTIONAL}
            lists[row["query_id"]].append(Hit(row["item_id"], **told))
        return [Answer(hits_of(hits, k, name)) for hits in lists.values()]


def _refuse_failed(run: Run, name: str) -> None:
    if run.calls is None or "error" not in run.calls.columns:
        return
    failed = run.calls.filter(pl.col("error").is_not_null())
    if failed.height:
        query, reason = failed["query_id"][0], " ".join(str(failed["error"][0]).split())
        raise CallError(f"{name} failed for query {query!r}: {reason}")


def _ranked(run: Run) -> pl.DataFrame:
    """The hits best first; equal scores stay in their order."""
    by_score = run.order == "score"
    return run.hits.sort(run.order, descending=by_score, maintain_order=True)
