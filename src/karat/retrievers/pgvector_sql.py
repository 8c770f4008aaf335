"""What PostgreSQL is asked, and what its answers and refusals mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from karat.errors import CallError
from karat.formats.forms import refused
from karat.retrievers.foreign import said
from karat.retrievers.protocol import Hit, Query
from karat.retrievers.vectors import Floats

Metric = Literal["cosine", "l2", "dot"]
# What puts the nearest first; the operator for dot gives the negative product.
_OPERATORS: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_PLACE = re.compile(r"%(?:%|\((?P<name>[^)]*)\)s|(?P<other>.?))", re.DOTALL)
# What the server says when it cannot serve now but may soon.
_SOON = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots")
_PASSING = ("08", "40", "53", "57P")
_TIMEOUT = "57014"
_HINTS = {
    "22000": "the model must be the one that made the vectors in the table",
    "22P02": "check where, and that the embedding column holds vectors",
    "25006": "karat only reads",
    "42501": "give the user the right to read it",
    "42601": "check where or sql",
    "42703": "check id, embedding, text, doc_id, version, source and where",
    "42704": "is the extension vector there? CREATE EXTENSION vector",
    "42883": "is the extension vector there (CREATE EXTENSION vector), "
    "and does the embedding column hold vectors?",
    "42P01": "check table, and the schema before it: schema.table",
}


def statement_of(
    table: str,
    columns: Mapping[str, str],
    embedding: str,
    metric: Metric,
    where: str | None,
) -> Any:
    """The nearest rows of a table; ``columns`` are those of a hit, by their names there.

    An index serves the inner query; the outer one orders what is equally near and drops
    what has no distance, such as rows without a vector.
    """
    from psycopg import sql

    named = [
        sql.SQL("{} AS {}").format(_identifier(column), sql.Identifier(key))
        for key, column in columns.items()
    ]
    distance = sql.SQL("{} {} %(vector)s").format(_identifier(embedding), _raw(_OPERATORS[metric]))
    kept = sql.SQL("") if where is None else sql.SQL("WHERE ({}) ").format(_raw(where))
    return sql.SQL(
        "SELECT * FROM (SELECT {named}, {distance} AS distance FROM {table} {kept}"
        "ORDER BY {distance} LIMIT %(k)s) AS nearest "
        "WHERE distance < 'Infinity' ORDER BY distance, item_id"
    ).format(
        named=sql.SQL(", ").join(named),
        distance=distance,
        table=_identifier(*table.split(".")),
        kept=kept,
    )


def _identifier(*names: str) -> Any:
    from psycopg import sql

    # Placeholders are looked for in names too.
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def _raw(text: Any) -> Any:
    from psycopg import sql

    return sql.SQL(text)


def places_in(text: str, key: str) -> set[str]:
    """The names of the placeholders in SQL; any other per cent sign is refused.

    >>> sorted(places_in("a <=> %(vector)s AND b LIKE 'x%%' LIMIT %(k)s", "where"))
    ['k', 'vector']
    """
    names = set()
    for match in _PLACE.finditer(text):
        if match["other"] is not None:
            raise refused(
                f"{key} holds %{match['other']}; placeholders are written %(name)s, "
                "and a per cent sign %%"
            )
        if match["name"] is not None:
            names.add(match["name"])
    return names


def values_for(names: set[str], query: Query, vector: Floats | None, k: int) -> dict[str, Any]:
    """What goes into the placeholders: vector, query, query_id, k and the query's attributes."""
    known: dict[str, Any] = {
        **query.attributes,
        "query": query.text,
        "query_id": query.query_id,
        "k": k,
    }
    if vector is not None:
        known["vector"] = f"[{','.join(format(number, '.9g') for number in vector.tolist())}]"
    for name in names:
        if name not in known:
            raise CallError(
                f"%({name})s is not an attribute of query {query.query_id!r}; "
                f"it has {', '.join(sorted(known))}"
            )
    return {name: known[name] for name in names}


def scored(row: Mapping[str, Any], metric: Metric) -> Hit:
    """A row of a table as a hit whose score is high for what is near."""
    near = -float(row["distance"])
    if metric == "cosine":
        near += 1.0
    told = {key: value for key, value in row.items() if key != "distance"}
    return Hit(**told)._replace(score=near, similarity=near if metric == "cosine" else None)


def not_connected(error: Exception, redact: Callable[[str], str]) -> CallError:
    """Why there is no connection, and whether there may be one later."""
    text = " ".join(redact(str(error)).split())
    refused = "FATAL" in text and not any(words in text for words in _SOON)
    wrong = text.startswith("connection is bad")
    return CallError(f"PostgreSQL: {text[:300]}", may_pass=not refused and not wrong)


def not_answered(
    error: Exception, seconds: float, redact: Callable[[str], str], *, lost: bool
) -> CallError:
    """Why a query failed, what to do, and whether it may pass."""
    state = getattr(error, "sqlstate", None) or ""
    if state == _TIMEOUT:
        return CallError(
            f"PostgreSQL took longer than {seconds:g} s; raise timeout or add an index",
            may_pass=True,
        )
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    text = said(error, redact) if primary is None else " ".join(redact(primary).split())[:300]
    hint = f"; {_HINTS[state]}" if state in _HINTS else ""
    return CallError(f"PostgreSQL: {text}{hint}", may_pass=lost or state.startswith(_PASSING))
