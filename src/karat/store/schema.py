"""The tables of a store, the version they are of, and the way from older versions to this one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
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

NAME, LONGEST_NAME = String(255), 255


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
    Column("report_id", ForeignKey("karat_reports.id"), nullable=False),
    Column("saved_at", Moment, nullable=False, index=True),
    Column("system", NAME, nullable=False, index=True),
    Column("revision", NAME),
    Column("dirty", Boolean),
    Column("note", _TEXT, nullable=False),
    Column("verdict", String(50)),
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

Migration = Callable[[Connection], None]
# MIGRATIONS[n] takes the tables of version n + 1 to those of version n + 2, in its own SQL:
# what is declared above is always the newest version, which a new store gets at once.
MIGRATIONS: list[Migration] = []

# Any number that other users of the same server are unlikely to lock.
_LOCK = 7_221_408


def newest() -> int:
    """The version of the tables declared here."""
    return 1 + len(MIGRATIONS)


def version_of(connection: Connection, where: str) -> int:
    """The version of the store's tables, 0 where there are none yet; refuses a newer one."""
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


def upgrade(connection: Connection, where: str) -> None:
    """Make the tables, or bring older ones up to date, within the caller's transaction."""
    if version_of(connection, where) == newest():
        return
    if connection.dialect.name == "postgresql":
        # Two that make the same table at once would fail instead of waiting.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    version = version_of(connection, where)
    if version == 0:
        METADATA.create_all(connection)
        connection.execute(insert(VERSIONS).values(id=1, version=newest()))
        return
    for migrate in MIGRATIONS[version - 1 :]:
        migrate(connection)
    connection.execute(update(VERSIONS).values(version=newest()))
