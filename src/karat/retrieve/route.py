"""route: one of several retrievers, chosen per query by a callable, a column or rules."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from karat.errors import CallError, unknown
from karat.formats.settings import ConfigModel, custom_error, preview
from karat.retrieve import fuse
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Finder, Query
from karat.retrieve.system_config import Spec, Text
from karat.retrieve.user_code import UserCode, load_callable, takes_first

# What a choice may be: a name, several, or none.
Choose = Callable[[Query], Any]


def _expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise custom_error(f"match is {pattern!r}, not a regular expression: {error}") from None
    return pattern


class RouteRule(ConfigModel):
    """Queries whose text matches go to one retriever."""

    match: Annotated[Text, AfterValidator(_expression)] = Field(
        description="a regular expression that the query's text is searched for"
    )
    to: Text = Field(description="the name of one of the retrievers in of")


class RouteOptions(ConfigModel):
    """What to choose among, and how."""

    of: Annotated[dict[str, Spec], AfterValidator(fuse.check_part_names)] = Field(
        description="a mapping of names to retrievers"
    )
    by: Text | None = Field(None, description="module:callable or file.py:callable")
    column: Text | None = Field(None, description="a column of the queries")
    rules: list[RouteRule] | None = Field(
        None, description="a list of rules such as {match: invoice, to: tickets}"
    )
    default: Text | None = Field(None, description="the name of one of the retrievers in of")

    @model_validator(mode="after")
    def _one_way(self) -> RouteOptions:
        set_keys = [key for key in ("by", "column", "rules") if getattr(self, key) is not None]
        if len(set_keys) != 1:
            has = f"has {' and '.join(set_keys)}" if set_keys else "has none of them"
            raise custom_error(f"a route needs one of by, column and rules; this one {has}")
        if self.rules == []:
            raise custom_error("rules is empty; give at least one {match: ..., to: ...}")
        named = [rule.to for rule in self.rules or ()]
        for name in named if self.default is None else [*named, self.default]:
            if name not in self.of:
                raise custom_error(str(unknown("retriever of the route", name, self.of)))
        return self


Options = RouteOptions


def parts(options: RouteOptions) -> dict[str, Spec]:
    """Return the retrievers by name."""
    return options.of


def make(options: RouteOptions, context: BuildContext, parts: Mapping[str, Finder]) -> Route:
    """Return the router over the parts."""
    return Route(_chooser(options, context), parts, options.default)


class Route:
    """Asks the chosen parts for each query; lists of several parts are fused by rank."""

    def __init__(self, choose: Choose, parts: Mapping[str, Finder], default: str | None) -> None:
        self.parts = dict(parts)
        self.default = default
        self.batch, self.concurrency = fuse.batch_and_concurrency(self.parts)
        self.deep = all(part.deep for part in parts.values())
        self._choose = choose

    @property
    def meta(self) -> Mapping[str, Any]:
        """The meta of the parts, with sizes added up."""
        return fuse.meta_of_parts(self.parts)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return one list per query; queries with the same choice are asked together."""
        chosen: dict[tuple[str, ...], list[int]] = {}
        times: list[float] = []
        for at, query in enumerate(queries):
            start = time.perf_counter()
            chosen.setdefault(self._chosen(query), []).append(at)
            times.append((time.perf_counter() - start) * 1000)
        answers: dict[int, Answer] = {}
        for names, places in chosen.items():
            how = fuse.FuseOptions.model_validate({"of": list(names)})
            fused = fuse.Fuse(how, {name: self.parts[name] for name in names}, label=True)
            same_choice = [queries[at] for at in places]
            for at, answer in zip(places, fused.find(same_choice, k), strict=True):
                answer.latency = {"route": times[at]} | answer.latency
                answer.spent = times[at] + (answer.spent or 0.0)
                answer.source = "+".join(names)
                answers[at] = answer
        return [answers[at] for at in range(len(queries))]

    def _chosen(self, query: Query) -> tuple[str, ...]:
        choice = self._choose(query)
        names = [choice] if isinstance(choice, str) else choice
        if not names and self.default is not None:
            names = [self.default]
        parts = list(self.parts)
        sound = isinstance(names, list | tuple) and all(name in parts for name in names)
        if not names or not sound:
            raise CallError(
                f"route chose {preview(choice)}; one or more of {', '.join(parts)} are expected"
                + ("" if names else ", or a default")
            )
        return tuple(dict.fromkeys(names))


def _chooser(options: RouteOptions, context: BuildContext) -> Choose:
    if options.by is not None:
        call = load_callable(options.by, context.folder)
        code = UserCode(f"route {options.by}", context.timeout, context.redact)
        takes_query = takes_first(call, Query)
        return lambda query: code.call(lambda: call(query if takes_query else query.text))
    if (column := options.column) is not None:
        return lambda query: _listed(query.attributes.get(column))
    compiled = [(re.compile(rule.match), rule.to) for rule in options.rules or []]
    return lambda query: next((to for match, to in compiled if match.search(query.text)), None)


def _listed(value: Any) -> list[str]:
    names = value if isinstance(value, list) else [value]
    return [str(name) for name in names if name is not None]
