"""python: a callable of the user (text and k in, a ranked list out), or an object that searches.

An object with ``search(queries, k)`` is given whole batches and returns a Run.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import Field, model_validator

from karat.data.tables import Queries, Run
from karat.errors import CallError, UsageError
from karat.formats.settings import ConfigModel
from karat.retrieve.build_context import BuildContext
from karat.retrieve.placeholders import literal_inside, map_texts
from karat.retrieve.protocol import Answer, Finder, Hit, Hits, Query, QueryFinder
from karat.retrieve.system_config import Text, refuse
from karat.retrieve.user_code import (
    UserCode,
    fits,
    hits_from,
    load_object,
    parameters,
    takes_first,
)

# What an object that searches for many queries at once is given at a time.
_BATCH = 32
# A text or query and k in, a ranked list out.
Ask = Callable[[Any, int], Any]
_OPTIONAL = ("score", "doc_id", "version", "source", "similarity", "start", "end")


class PythonOptions(ConfigModel):
    """Which callable, and its further arguments."""

    call: Text = Field(description="module:callable or file.py:callable")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="a mapping of extra arguments for the callable, by their names",
    )

    @model_validator(mode="after")
    def _agree(self) -> PythonOptions:
        refuse(literal_inside(self.options, "options: "))
        return self


Options = PythonOptions


def make(options: PythonOptions, context: BuildContext, parts: Mapping[str, Finder]) -> Finder:
    """Load the callable or object as a finder."""
    code = UserCode(options.call, context.timeout, context.redact)
    arguments = map_texts(options.options, context.expand)
    loaded = context.objects.get(options.call)
    if loaded is None:
        loaded = code.load(lambda: load_object(options.call, context.folder))
    call, arguments = _resolved(loaded, arguments, code)
    search = getattr(call, "search", None)
    target = call if search is None else search
    if not callable(target):
        raise UsageError(
            f"{options.call} is {type(call).__name__}, which can neither be called nor searched"
        )
    meta = _meta_of(call, options.call)
    one_by_one = search is None or takes_first(search, str) or takes_first(search, Query)
    if one_by_one and not takes_first(target, Queries):
        ask = _asking(target, arguments, k_optional=True)
        if ask is None:
            names = "".join(f", {name}" for name in arguments)
            raise UsageError(
                f"{code.name} takes {parameters(target)}; it must take (text, k{names}), or the "
                "text alone, or make such a callable"
            )
        takes_query = takes_first(target, Query)

        def find(query: Query, k: int) -> Answer:
            argument = query if takes_query else query.text
            # A generator does its work while it is read, so that counts as the call too.
            return Answer(code.call(lambda: hits_from(ask(argument, k), k, code.name)))

        return QueryFinder(find, meta, deep=False)
    return Batches(partial(target, **arguments), code, meta)


def made_by(factory: Any, arguments: Mapping[str, Any], code: UserCode) -> Any:
    """Return what a class or a function without required arguments makes."""
    if not fits(factory, (), arguments):
        takes = f"take {', '.join(arguments)} and " if arguments else ""
        needs = "nothing else" if arguments else "no arguments"
        raise UsageError(f"{code.name} takes {parameters(factory)}; it must {takes}need {needs}")
    return code.load(lambda: factory(**arguments))


def _resolved(
    loaded: Any, arguments: Mapping[str, Any], code: UserCode
) -> tuple[Any, Mapping[str, Any]]:
    """Return the callable or object to ask, and the arguments left for it."""
    if inspect.isclass(loaded):
        return made_by(loaded, arguments, code), {}
    if hasattr(loaded, "search") or not callable(loaded):
        if arguments:
            raise UsageError(f"{code.name} is an object, which takes no options; leave them out")
        return loaded, {}
    if _asking(loaded, arguments) is None and fits(loaded, (), arguments):
        return made_by(loaded, arguments, code), {}
    return loaded, arguments


def _asking(
    call: Callable[..., Any], more: Mapping[str, Any], *, k_optional: bool = False
) -> Ask | None:
    """Return how to call it with a text and k; None if it does not take them."""
    if fits(call, ("", 1), more):
        return lambda text, k: call(text, k, **more)
    if fits(call, ("",), {**more, "k": 1}):
        return lambda text, k: call(text, k=k, **more)
    if k_optional and fits(call, ("",), more):
        return lambda text, k: call(text, **more)
    return None


def _meta_of(loaded: Any, name: str) -> dict[str, Any]:
    """Return the meta: the name, and the object's own ``meta``."""
    object_meta = getattr(loaded, "meta", None)
    if not isinstance(object_meta, Mapping):
        return {"call": name}
    try:
        checked: dict[str, Any] = json.loads(json.dumps(dict(object_meta), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} has a meta that JSON cannot hold: {error}") from None
    return {"call": name, **checked}


@dataclass(frozen=True, eq=False)
class Batches:
    """Asks an object for many queries at a time: a table in, a run out."""

    search: Callable[..., Any]
    code: UserCode
    meta: Mapping[str, Any]
    batch: int = _BATCH
    concurrency: int = 1
    deep: bool = False

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return the run's list for each query; a failed call of the run fails here."""
        table = Queries.from_dict(
            {query.query_id: {"text": query.text, **query.attributes} for query in queries}
        )
        return self.code.call(lambda: self._answers(table, k))

    def _answers(self, table: Queries, k: int) -> list[Answer]:
        name = self.code.name
        run = self.search(table, k)
        if not isinstance(run, Run):
            raise CallError(
                f"{name}'s search returned {type(run).__name__} instead of a karat Run; "
                "a search(text: str, k) must say that it takes a str"
            )
        run = run.at("final")
        if run.calls is not None and "error" in run.calls.columns:
            for query, error in run.calls.select("query_id", "error").drop_nulls("error").rows():
                reason = " ".join(str(error).split())
                raise CallError(f"{name} failed for query {query!r}: {reason}")
        lists: dict[str, Hits] = {query: [] for query in table.frame["query_id"]}
        ranked = run.hits.sort(run.order, descending=run.order == "score", maintain_order=True)
        for row in ranked.iter_rows(named=True):
            if row["query_id"] not in lists:
                raise CallError(
                    f"{name} returned hits for query {row['query_id']!r}, which was not asked"
                )
            optional = {key: row.get(key) for key in _OPTIONAL}
            lists[row["query_id"]].append(Hit(row["item_id"], **optional))
        return [Answer(hits_from(hits, k, name)) for hits in lists.values()]
