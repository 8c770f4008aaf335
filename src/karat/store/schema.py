"""The tables of a store, and the version that they are of."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
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
from sqlalchemy.dialects.mysql import LONGTEXT

from karat.errors import InputError
from karat.formats.labels import HUMAN
from karat.store.migrations import MIGRATIONS

NAME, LONGEST_NAME = String(255), 255
_HIGHEST_ID = 2**31 - 1


class Moment(TypeDecorator[datetime]):
    """A moment in UTC, aware of it also where the database is not."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


METADATA = MetaData()

# MySQL's plain TEXT and BLOB end at 64 KiB.
_TEXT = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_BYTES = LargeBinary(2**32 - 1)

VERSIONS = Table(
    "karat_store",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    # Another one after every change, so that whoever kept an answer sees whether it still holds.
    Column("stamp", String(32)),
)
REPORTS = Table(
    "karat_reports",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("document", _TEXT, nullable=False),
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
    Column("note", _TEXT, nullable=False),
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
    Column("about", _TEXT, nullable=False),
    # An id that was given away is never given again: people write them down.
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
    Column("more", _TEXT, nullable=False),
    Index("karat_measures_by_name", "measure"),
)
SCORES = Table(
    "karat_scores",
    METADATA,
    Column("evaluation_id", ForeignKey("karat_evaluations.id"), primary_key=True),
    Column("queries", _BYTES, nullable=False),
    Column("evidence", _BYTES),
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
    Column("data", _BYTES, nullable=False),
)
LABEL_SETS = Table(
    "karat_label_sets",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("made_at", Moment, nullable=False),
    Column("about", _TEXT, nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("size", Integer, nullable=False),
    sqlite_autoincrement=True,
)
LABEL_ITEMS = Table(
    "karat_label_items",
    METADATA,
    Column("set_id", ForeignKey("karat_label_sets.id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("query_id", _TEXT, nullable=False),
    Column("item_id", _TEXT, nullable=False),
    Column("query", _TEXT, nullable=False),
    Column("text", _TEXT, nullable=False),
    Column("facts", _TEXT, nullable=False),
)
JUDGMENTS = Table(
    "karat_judgments",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("set_id", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("rater", NAME, nullable=False),
    Column("grade", Double),
    Column("rationale", _TEXT, nullable=False),
    Column("given_at", Moment, nullable=False),
    Column("withdrawn_at", Moment),
    # Where it comes from: a person, a model, a file, or who decided between raters.
    Column("source", NAME, nullable=False, server_default=HUMAN),
    ForeignKeyConstraint(
        ["set_id", "position"], ["karat_label_items.set_id", "karat_label_items.position"]
    ),
    Index("karat_judgments_by_rater", "set_id", "rater"),
    sqlite_autoincrement=True,
)

# Any number that other users of the same server are unlikely to lock.
_LOCK = 7_221_408
_VERSION = select(VERSIONS.c.version)
# The first version that has parts, labels and a stamp; an older store is read without them.
WITH_LABELS = 2
# The first version whose judgments say where they come from; those before it are people's.
WITH_SOURCES = 3


def within(number: int) -> int:
    """A number that every database takes; none has a row of one that is changed by this."""
    return max(-1, min(number, _HIGHEST_ID))


def newest() -> int:
    """The version of the tables declared here."""
    return 1 + len(MIGRATIONS)


def version_of(connection: Connection, where: str, *, sure: bool = False) -> int:
    """The version of the store's tables, 0 where there are none yet; refuses a newer one.

    Who has seen the tables before is ``sure`` of them, and spares looking for them.
    """
    if not sure and not inspect(connection).has_table(VERSIONS.name):
        return 0
    version = connection.execute(_VERSION).scalar()
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
    """Make the tables, or bring older ones up to date, within the caller's transaction."""
    if version == newest():
        return
    if connection.dialect.name == "postgresql":
        # Who has looked at the version keeps others from changing its table. Let go of it, or
        # the one who is changing it waits for the one who waits here.
        connection.exec_driver_sql("ROLLBACK")
        # Two that make the same table at once would fail instead of waiting.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    version = version_of(connection, where)
    if version == newest():
        # Another was faster. To touch the row now would bar the way of those who touch it last.
        return
    if version == 0:
        _refuse_foreign(connection, where)
        _refuse_without_version(connection, where)
        METADATA.create_all(connection)
        connection.execute(insert(VERSIONS).values(id=1, version=newest()))
        return
    for migrate in MIGRATIONS[version - 1 :]:
        migrate(connection)
    connection.execute(update(VERSIONS).values(version=newest()))


def _refuse_without_version(connection: Connection, where: str) -> None:
    """Refuse tables of karat that may be of any version."""
    there = METADATA.tables.keys() & set(inspect(connection).get_table_names())
    if there - {VERSIONS.name}:
        raise InputError(
            "has tables of karat, and not the version that they are of; restore it from a copy",
            where=where,
        )


def _refuse_foreign(connection: Connection, where: str) -> None:
    """Keep out of a file that another program made; a server has room for several."""
    if connection.dialect.name != "sqlite":
        return
    others = set(inspect(connection).get_table_names()) - set(METADATA.tables)
    if others:
        raise InputError(
            f"is a database of another program (it has a table {min(others)!r});"
            " name a file of its own",
            where=where,
        )


def mark(connection: Connection) -> None:
    """Note that something has changed.

    Random, since a number that is counted up would come twice: once before a copy of the store
    is put back, and once after. The last act of a change, so that nobody waits long for it.
    """
    connection.execute(update(VERSIONS).values(stamp=secrets.token_hex(8)))
