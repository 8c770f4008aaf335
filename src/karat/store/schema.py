"""The tables of a store, their version, and the migrations from older versions."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    CursorResult,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    insert,
    inspect,
    select,
    text,
    update,
)

from karat.errors import InputError
from karat.formats.labels import HUMAN
from karat.store.records import LONGEST_NAME

NAME = String(LONGEST_NAME)
HIGHEST_ID = 2**31 - 1
# Any number that other users of the same server are unlikely to lock.
_LOCK = 7_221_408


class Moment(TypeDecorator[datetime]):
    """A time in UTC, with its time zone even where the database keeps none."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Add the time zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


METADATA = MetaData()

VERSIONS = Table(
    "karat_store",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    # Changes with every write, so that a cached answer can be checked.
    Column("stamp", String(32)),
)
REPORTS = Table(
    "karat_reports",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)
EVALUATIONS = Table(
    "karat_evaluations",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("report_id", ForeignKey("karat_reports.id"), nullable=False, index=True),
    Column("saved_at", Moment, nullable=False, index=True),
    Column("system", NAME, nullable=False, index=True),
    Column("revision", NAME),
    Column("dirty", Boolean),
    Column("note", Text, nullable=False),
    Column("verdict", String(50), index=True),
    Column("karat_version", String(50), nullable=False),
    Column("run_name", NAME, nullable=False),
    Column("run_sha256", String(64)),
    Column("gold_name", NAME, nullable=False),
    Column("gold_sha256", String(64), index=True),
    Column("queries_name", NAME),
    Column("queries_sha256", String(64)),
    Column("corpus_name", NAME),
    Column("corpus_sha256", String(64)),
    Column("about", Text, nullable=False),
    # Ids are never reused: people write them down.
    sqlite_autoincrement=True,
)
MEASURES = Table(
    "karat_measures",
    METADATA,
    Column("evaluation_id", ForeignKey("karat_evaluations.id"), primary_key=True),
    Column("measure", NAME, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("mean", Double),
    Column("ci_low", Double),
    Column("ci_high", Double),
    Column("n", Integer, nullable=False),
    Column("better", String(10), nullable=False),
    Column("ceiling", Double),
    Column("more", Text, nullable=False),
    Index("karat_measures_by_name", "measure"),
)
SCORES = Table(
    "karat_scores",
    METADATA,
    Column("evaluation_id", ForeignKey("karat_evaluations.id"), primary_key=True),
    Column("queries", LargeBinary, nullable=False),
    Column("evidence", LargeBinary),
)
TAGS = Table(
    "karat_tags",
    METADATA,
    Column("evaluation_id", ForeignKey("karat_evaluations.id"), primary_key=True),
    Column("tag", NAME, primary_key=True),
    Column("tagged_at", Moment, nullable=False),
    Index("karat_tags_by_name", "tag"),
)

PARTS = Table(
    "karat_parts",
    METADATA,
    Column("report_id", ForeignKey("karat_reports.id"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
LABEL_SETS = Table(
    "karat_label_sets",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("made_at", Moment, nullable=False),
    Column("about", Text, nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("size", Integer, nullable=False),
    sqlite_autoincrement=True,
)
LABEL_ITEMS = Table(
    "karat_label_items",
    METADATA,
    Column("set_id", ForeignKey("karat_label_sets.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("query_id", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("query", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("facts", Text, nullable=False),
)
JUDGMENTS = Table(
    "karat_judgments",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("set_id", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("rater", NAME, nullable=False),
    Column("grade", Double),
    Column("rationale", Text, nullable=False),
    Column("given_at", Moment, nullable=False),
    Column("withdrawn_at", Moment),
    # A person, a model, a file, or an adjudication between raters.
    Column("source", NAME, nullable=False, server_default=HUMAN),
    ForeignKeyConstraint(
        ["set_id", "position"], ["karat_label_items.set_id", "karat_label_items.position"]
    ),
    Index("karat_judgments_by_rater", "set_id", "rater"),
    sqlite_autoincrement=True,
)


def clamp_id(number: int) -> int:
    """Return a number that every database accepts; a changed one is the id of no row."""
    return max(-1, min(number, HIGHEST_ID))


def new_id(result: CursorResult[Any]) -> int:
    """Return the id of the row that was inserted."""
    return int(result.inserted_primary_key[0])  # type: ignore[index]  # one row, one key


def mark_changed(connection: Connection) -> None:
    """Change the store's stamp.

    The stamp is random: a counter would repeat after a copy of the store is put back. Done last
    in a transaction, so that nobody waits long for the row.
    """
    connection.execute(update(VERSIONS).values(stamp=secrets.token_hex(8)))


def newest() -> int:
    """Return the version of the tables declared here."""
    return 1 + len(MIGRATIONS)


def version_of(connection: Connection, where: str) -> int:
    """Return the version of the store's tables, 0 where there are none; refuse a newer one."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    version = connection.execute(select(VERSIONS.c.version)).scalar()
    if version is None:
        return 0
    if not isinstance(version, int) or version < 1:
        raise InputError(
            f"says that it is of store version {version!r}, which there never was;"
            " restore it from a copy",
            where=where,
        )
    if version > newest():
        raise InputError(
            f"was made by a newer karat (store version {version}, this one knows {newest()});"
            " upgrade karat",
            where=where,
        )
    return version


def upgrade(connection: Connection, where: str, *, version: int) -> None:
    """Create the tables, or migrate older ones, within the caller's transaction."""
    if version == newest():
        return
    if connection.dialect.name == "postgresql":
        # Reading the version locks its table against changes. Release it, or a process that
        # migrates waits for this one, which waits for that process below.
        connection.exec_driver_sql("ROLLBACK")
        # Two processes that create the same table at once would fail instead of waiting.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        version = version_of(connection, where)
        if version == newest():
            # Another process was faster. Touching the row now would block those who touch it last.
            return
    if version == 0:
        _refuse_other_tables(connection, where)
        METADATA.create_all(connection)
        connection.execute(insert(VERSIONS).values(id=1, version=newest()))
        return
    for migrate in MIGRATIONS[version - 1 :]:
        migrate(connection)
    connection.execute(update(VERSIONS).values(version=newest()))


def _refuse_other_tables(connection: Connection, where: str) -> None:
    """Refuse a file of another program, and karat's tables without their version.

    A server may hold the tables of several programs.
    """
    names = set(inspect(connection).get_table_names())
    others = names - set(METADATA.tables)
    if others and connection.dialect.name == "sqlite":
        raise InputError(
            f"is a database of another program (it has a table {min(others)!r});"
            " name a file of its own",
            where=where,
        )
    if names & (METADATA.tables.keys() - {VERSIONS.name}):
        raise InputError(
            "has tables of karat, and not the version that they are of; restore it from a copy",
            where=where,
        )


def _add_parts_and_labels(connection: Connection) -> None:
    """Migrate version 1 to 2: parts of pages, label sets, judgments and a stamp.

    Creates tables as they are now, so that later migrations must accept what exists already.
    """
    _add_column(connection, "karat_store", "stamp", "VARCHAR(32)")
    METADATA.create_all(connection)
    for table in METADATA.tables.values():
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _add_sources(connection: Connection) -> None:
    """Migrate version 2 to 3: judgments have a source; all before were people's."""
    _add_column(connection, "karat_judgments", "source", "VARCHAR(255) DEFAULT 'human' NOT NULL")


def _add_column(connection: Connection, table: str, name: str, kind: str) -> None:
    if name not in {column["name"] for column in inspect(connection).get_columns(table)}:
        connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {name} {kind}"))


# MIGRATIONS[n] turns the tables of version n + 1 into those of version n + 2.
MIGRATIONS: list[Callable[[Connection], None]] = [_add_parts_and_labels, _add_sources]
