"""A table of pgvector in PostgreSQL, or a query in SQL of the user's own.

Nothing can be changed through it: every session is read-only.
"""

from __future__ import annotations

import math
import re
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from karat.errors import UsageError, missing_extra
from karat.retrievers.foreign import Foreign
from karat.retrievers.forms import Text
from karat.retrievers.pgvector_sql import (
    Metric,
    not_answered,
    not_connected,
    places_in,
    scored,
    statement_of,
    values_for,
)
from karat.retrievers.protocol import Finder, Hits, Query
from karat.retrievers.returned import hits_of
from karat.retrievers.secrets import FROM_ENVIRONMENT
from karat.retrievers.stores import (
    SERVER_CONCURRENCY,
    FieldsForm,
    QueryModelForm,
    StoreFinder,
    query_model,
    refuse,
    wrong_model,
)
from karat.retrievers.vectors import Floats
from karat.retrievers.workshop import Workshop

_COLUMNS = ("text", "doc_id", "version", "source")
_OF_A_TABLE = ("id", "embedding", "where", "metric", *_COLUMNS)
_PASSWORD = re.compile(r"://[^/?#@]*:[^/?#@]+@|\b(?:ssl)?password\s*=\s*[^\s&]", re.IGNORECASE)
# libpq waits at least this long for a connection.
_LEAST_WAIT = 2


class Options(FieldsForm):
    """Where the database is, and which table or which SQL to ask."""

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
    def _agree(self) -> Options:
        refuse(_written_password(self.dsn), _wrong(self))
        return self

    @property
    def places(self) -> set[str]:
        """The placeholders in the SQL that is sent."""
        if self.sql is not None:
            return places_in(self.sql, "sql")
        return {"vector", "k"} | places_in(self.where or "", "where")


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> StoreFinder:
    """The table or the SQL; nothing is asked yet."""
    _library()
    dsn = _dsn(options.dsn, workshop)
    redact = workshop.redact
    return StoreFinder(
        _Table(options, _Connections(dsn, workshop.timeout, redact)).hits,
        query_model(options, workshop) if "vector" in options.places else None,
        Foreign("PostgreSQL", workshop.timeout + 1, redact, again=True),
        concurrency=SERVER_CONCURRENCY,
        meta={"store": "pgvector"} | ({} if options.table is None else {"table": options.table}),
    )


def _library() -> Any:
    try:
        import psycopg
    except ImportError:
        raise missing_extra("retriever pgvector", "psycopg", "pgvector") from None
    return psycopg


def _wrong(options: Options) -> str | None:
    """What of the settings does not go together."""
    if (options.table is None) == (options.sql is None):
        return "give table, with id and embedding, or sql"
    for key in ("id", "embedding"):
        if options.table is not None and getattr(options, key) is None:
            return f"{key} is missing; name the column of table {options.table}"
    if not all((options.table or "a").split(".")):
        return f"table is {options.table!r}; it must be a name, or schema.table"
    given = options.model_fields_set
    idle = sorted(given & set(_OF_A_TABLE)) if options.sql is not None else []
    if idle:
        return f"{idle[0]} is for a table; with sql leave it out"
    if not options.places & {"vector", "query"}:
        return "sql has neither %(vector)s nor %(query)s in it; it must ask for one"
    if "vector" in options.places:
        return wrong_model(options)
    idle = sorted(given & QueryModelForm.model_fields.keys())
    return f"{idle[0]} is for a vector, and sql has no %(vector)s; leave it out" if idle else None


def _written_password(dsn: str) -> str | None:
    if not _PASSWORD.search(FROM_ENVIRONMENT.sub("", dsn)):
        return None
    return "dsn has a password written out; keep it in the environment: dsn: ${DATABASE_URL}"


def _dsn(written: str, workshop: Workshop) -> str:
    """The connection string; a password is hidden by itself too, wherever it turns up."""
    dsn = workshop.expand(written)
    from psycopg.conninfo import conninfo_to_dict

    try:
        told = conninfo_to_dict(dsn)
    # What the library says holds the string itself.
    except _library().Error:
        raise UsageError(
            "dsn cannot be read; postgresql://user@host/database is expected, or host=… dbname=…"
        ) from None
    port = str(told.get("port") or "0")
    if "@" in str(told.get("host") or "") or not all(one.isdigit() for one in port.split(",")):
        raise UsageError(
            "dsn has a host or port that cannot be; in a password write @ as %40, "
            ": as %3A and / as %2F"
        )
    if told.get("password"):
        whole = FROM_ENVIRONMENT.fullmatch(written.strip())
        name = "dsn" if whole is None else written.strip()[2:-1]
        workshop.secrets[f"{name}:password"] = str(told["password"])
    return dsn


class _Connections:
    """As many connections as there are calls at once; a lost one is not used again."""

    def __init__(self, dsn: str, seconds: float, redact: Any) -> None:
        self.seconds = seconds
        self.redact = redact
        self._dsn = dsn
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    def rows(self, statement: Any, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What a statement gives."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect()
        try:
            found: list[dict[str, Any]] = connection.execute(statement, values).fetchall()
        except Exception as error:
            lost = bool(connection.broken)
            raise not_answered(error, self.seconds, self.redact, lost=lost) from error
        finally:
            if connection.broken:
                connection.close()
            else:
                with self._lock:
                    self._idle.append(connection)
        return found

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
                connect_timeout=max(_LEAST_WAIT, math.ceil(self.seconds)),
                fallback_application_name="karat",
            )
            connection.execute(
                f"SET statement_timeout = {max(1, round(self.seconds * 1000))}; "
                "SET default_transaction_read_only = on"
            )
        except library.Error as error:
            raise not_connected(error, self.redact) from error
        return connection


def _close(connections: list[Any]) -> None:
    for connection in connections:
        connection.close()


class _Table:
    """Asks a table, or the SQL."""

    def __init__(self, options: Options, connections: _Connections) -> None:
        self._connections = connections
        self._metric: Metric = options.metric
        self._own = options.sql
        self._places = options.places
        if options.sql is not None:
            self._statement: Any = options.sql
            return
        names = {"item_id": options.id or "", **{key: getattr(options, key) for key in _COLUMNS}}
        columns = {key: name for key, name in names.items() if name is not None}
        self._statement = statement_of(
            options.table or "", columns, options.embedding or "", options.metric, options.where
        )

    def hits(self, query: Query, vector: Floats | None, k: int) -> Hits:
        """The nearest rows as hits, or the rows of the SQL in their order."""
        values = values_for(self._places, query, vector, k)
        rows = self._connections.rows(self._statement, values)
        if self._own is not None:
            return hits_of(rows, k, "sql")
        return hits_of([scored(row, self._metric) for row in rows], k, "the table")
