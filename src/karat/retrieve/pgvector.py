"""pgvector: a table of pgvector in PostgreSQL, or a SQL query of the user.

Nothing can be changed through it: every session is read-only.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from karat.errors import CallError, UsageError
from karat.formats.settings import custom_error
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import QueryModelOptions, model_problem
from karat.retrieve.placeholders import ENVIRONMENT_VARIABLE, placeholder_value
from karat.retrieve.protocol import Finder, Hit, Hits, Query
from karat.retrieve.system_config import Text, refuse
from karat.retrieve.user_code import UserCode, error_line, hits_from, import_library
from karat.retrieve.vector_stores import (
    FieldsOptions,
    StoreFinder,
    query_model,
)
from karat.retrieve.vectors import Floats

Metric = Literal["cosine", "l2", "dot"]
# What puts the nearest first; the operator for dot gives the negative product.
_OPERATORS: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_PLACE = re.compile(r"%(?:%|\((?P<name>[^)]*)\)s|(?P<other>.?))", re.DOTALL)
# What the server says when it cannot serve now but may soon.
_SOON = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots")
_PASSING = ("08", "40", "53", "57P")
_TIMEOUT = "57014"
_HINTS = {
    "22000": "use the model that made the vectors in the table",
    "25006": "karat only reads",
    "42704": "is the extension vector there? CREATE EXTENSION vector",
    "42883": "is the extension vector there (CREATE EXTENSION vector)? else check embedding",
    **dict.fromkeys(("22P02", "42501", "42601", "42703"), "check where, sql and the columns"),
    "42P01": "check table, and the schema before it: schema.table",
}


def places_in(text: str, key: str) -> set[str]:
    """Return the names of the placeholders in SQL; refuse any other per cent sign.

    >>> sorted(places_in("a <=> %(vector)s AND b LIKE 'x%%' LIMIT %(k)s", "where"))
    ['k', 'vector']
    """
    names = set()
    for match in _PLACE.finditer(text):
        if match["other"] is not None:
            raise custom_error(
                f"{key} holds %{match['other']}; placeholders are written %(name)s, "
                "and a per cent sign %%"
            )
        if match["name"] is not None:
            names.add(match["name"])
    return names


_COLUMNS = ("text", "doc_id", "version", "source")
_OF_A_TABLE = ("id", "embedding", "where", "metric", *_COLUMNS)
_PASSWORD = re.compile(r"://[^/?#@]*:[^/?#@]+@|\b(?:ssl)?password\s*=\s*[^\s&]", re.IGNORECASE)
# libpq waits at least this long for a connection.
_LEAST_WAIT = 2


class PgvectorOptions(FieldsOptions):
    """Where the database is, and which table or SQL to ask."""

    dsn: Text = Field(description="how to connect, such as ${DATABASE_URL}")
    table: Text | None = Field(None, description="the table's name, or schema.table")
    embedding: Text | None = Field(None, description="the name of the column of vectors")
    metric: Metric = Field("cosine", description="cosine, l2 or dot")
    where: Text | None = Field(
        None, description="a condition in SQL; %(column)s in it stands for the query's"
    )
    sql: Text | None = Field(
        None,
        description="a query in SQL with %(vector)s or %(query)s, and %(k)s, that gives item_id "
        "and score",
    )

    @model_validator(mode="after")
    def _agree(self) -> PgvectorOptions:
        refuse(
            _PASSWORD.search(ENVIRONMENT_VARIABLE.sub("", self.dsn))
            and "dsn has a password written out; keep it in the environment: dsn: ${DATABASE_URL}",
            _contradiction(self),
        )
        return self

    @property
    def places(self) -> set[str]:
        """The placeholders in the SQL."""
        if self.sql is not None:
            return places_in(self.sql, "sql")
        return {"vector", "k"} | places_in(self.where or "", "where")


Options = PgvectorOptions


def make(
    options: PgvectorOptions, context: BuildContext, parts: Mapping[str, Finder]
) -> StoreFinder:
    """Prepare the table or the SQL; nothing is asked yet."""
    _library()
    dsn = _dsn(options.dsn, context)
    return StoreFinder(
        PgvectorStore(options, dsn, context.timeout, context.redact),
        query_model(options, context) if "vector" in options.places else None,
        UserCode("PostgreSQL", context.timeout + 1, context.redact, again=True),
        meta={"store": "pgvector"} | ({} if options.table is None else {"table": options.table}),
    )


def _library() -> Any:
    return import_library("psycopg", "retriever pgvector", "psycopg", "pgvector")


def _contradiction(options: PgvectorOptions) -> str | None:
    """Return which settings contradict each other."""
    if (options.table is None) == (options.sql is None):
        return "give table, with id and embedding, or sql"
    if options.sql is None and (options.id is None or options.embedding is None):
        key = "id" if options.id is None else "embedding"
        return f"{key} is missing; name the column of table {options.table}"
    if not all((options.table or "a").split(".")):
        return f"table is {options.table!r}; it must be a name, or schema.table"
    if not options.places & {"vector", "query"}:
        return "sql has neither %(vector)s nor %(query)s in it; it must ask for one"
    idle = set(_OF_A_TABLE) if options.sql is not None else set()
    if "vector" not in options.places:
        idle |= QueryModelOptions.model_fields.keys()
    idle &= options.model_fields_set
    if idle:
        return f"{min(idle)} has no effect on this sql; leave it out"
    return model_problem(options) if "vector" in options.places else None


def _dsn(written: str, context: BuildContext) -> str:
    """Return the connection string; its password is redacted on its own, too."""
    dsn = context.expand(written)
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(dsn)
    # What the library says holds the string itself.
    except _library().Error:
        raise UsageError(
            "dsn cannot be read; postgresql://user@host/database is expected, or host=… dbname=…"
        ) from None
    port = str(parts.get("port") or "0")
    if "@" in str(parts.get("host") or "") or not all(
        digits.isdigit() for digits in port.split(",")
    ):
        raise UsageError(
            "dsn has a host or port that cannot be; in a password write @ as %40, "
            ": as %3A and / as %2F"
        )
    if parts.get("password"):
        variable = ENVIRONMENT_VARIABLE.fullmatch(written.strip())
        name = "dsn" if variable is None else written.strip()[2:-1]
        context.secrets[f"{name}:password"] = str(parts["password"])
    return dsn


def statement_of(options: PgvectorOptions) -> Any:
    """Return the SQL for the nearest rows of a table.

    An index serves the inner query; the outer one orders what is equally near and drops
    what has no distance, such as rows without a vector.
    """
    from psycopg import sql

    def identifier(*names: str | None) -> sql.Identifier:
        # Placeholders are looked for in names too.
        return sql.Identifier(*(name.replace("%", "%%") for name in names if name is not None))

    def raw(text: Any) -> sql.SQL:
        return sql.SQL(text)

    columns = {"item_id": options.id, **{key: getattr(options, key) for key in _COLUMNS}}
    named = [
        sql.SQL("{} AS {}").format(identifier(column), sql.Identifier(key))
        for key, column in columns.items()
        if column is not None
    ]
    distance = sql.SQL("{} {} %(vector)s").format(
        identifier(options.embedding), raw(_OPERATORS[options.metric])
    )
    where = raw("" if options.where is None else f"WHERE ({options.where}) ")
    return sql.SQL(
        "SELECT * FROM (SELECT {named}, {distance} AS distance FROM {table} {where}"
        "ORDER BY {distance} LIMIT %(k)s) AS nearest "
        "WHERE distance < 'Infinity' ORDER BY distance, item_id"
    ).format(
        named=sql.SQL(", ").join(named),
        distance=distance,
        table=identifier(*(options.table or "").split(".")),
        where=where,
    )


class PgvectorStore:
    """Asks a table, or the SQL; one connection per concurrent call, no lost one twice."""

    def __init__(
        self, options: PgvectorOptions, dsn: str, seconds: float, redact: Callable[[str], str]
    ) -> None:
        self._options = options
        self._dsn = dsn
        self._seconds = seconds
        self._redact = redact
        self._places = options.places
        self._idle: list[Any] = []
        weakref.finalize(self, _close, self._idle)
        self._statement: Any = statement_of(options) if options.sql is None else options.sql

    def connect(self) -> Any:
        """Return nothing: connections are made as calls need them."""

    def look_up(self, client: Any) -> Any:
        """Return nothing: the statement says all."""

    def ask(
        self, client: Any, collection: Any, query: Query, vector: Floats | None, k: int
    ) -> Hits:
        """Return the nearest rows as hits, or the rows of the SQL in their order."""
        more: dict[str, Any] = {"k": k}
        if vector is not None:
            more["vector"] = f"[{','.join(format(number, '.9g') for number in vector.tolist())}]"
        values = {name: placeholder_value(name, query, more) for name in self._places}
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            rows: list[dict[str, Any]] = connection.execute(self._statement, values).fetchall()
        finally:
            if connection.broken:
                connection.close()
            else:
                self._idle.append(connection)
        if self._options.sql is not None:
            return hits_from(rows, k, "sql")
        return hits_from([self._scored(row) for row in rows], k, "the table")

    def _scored(self, row: Mapping[str, Any]) -> Hit:
        """Return a row as a hit whose score is high for what is near."""
        cosine = self._options.metric == "cosine"
        score = -float(row["distance"]) + (1.0 if cosine else 0.0)
        fields = {key: value for key, value in row.items() if key != "distance"}
        return Hit(**fields)._replace(score=score, similarity=score if cosine else None)

    def _connect(self) -> Any:
        from psycopg.rows import dict_row

        library = _library()
        try:
            connection = library.connect(
                self._dsn,
                autocommit=True,
                # Prepared statements fail behind some poolers.
                prepare_threshold=None,
                row_factory=dict_row,
                connect_timeout=max(_LEAST_WAIT, math.ceil(self._seconds)),
                fallback_application_name="karat",
            )
            connection.execute(
                f"SET statement_timeout = {max(1, round(self._seconds * 1000))}; "
                "SET default_transaction_read_only = on"
            )
        except library.Error as error:
            text = " ".join(self._redact(str(error)).split())
            refused = "FATAL" in text and not any(words in text for words in _SOON)
            passes = not refused and not text.startswith("connection is bad")
            raise CallError(f"PostgreSQL: {text[:300]}", may_pass=passes) from error
        return connection

    def failure(self, error: Exception) -> CallError:
        """Return why a query failed, what to do, and whether it may pass."""
        state = getattr(error, "sqlstate", None) or ""
        if state == _TIMEOUT:
            return CallError(
                f"PostgreSQL took longer than {self._seconds:g} s; raise timeout or add an index",
                may_pass=True,
            )
        primary = getattr(getattr(error, "diag", None), "message_primary", None)
        text = " ".join(self._redact(primary).split())[:300] if primary else ""
        hint = f"; {_HINTS[state]}" if state in _HINTS else ""
        # A lost connection has no state.
        lost = not state and isinstance(error, _library().OperationalError)
        return CallError(
            f"PostgreSQL: {text or error_line(error, self._redact)}{hint}",
            may_pass=lost or state.startswith(_PASSING),
        )


def _close(connections: list[Any]) -> None:
    for connection in connections:
        connection.close()
