"""The way of a store's tables from older versions to the newest, step by step.

Each step declares what it makes by itself: what schema.py declares is always the newest. A step
makes only what is not there, so that one that was broken off halfway can be done again.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
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
    inspect,
    text,
)
from sqlalchemy.dialects.mysql import LONGTEXT

Migration = Callable[[Connection], None]


def parts_and_labels(connection: Connection) -> None:
    """From version 1 to 2: parts of pages, label sets and judgments, a stamp; nothing is moved."""
    _add_column(connection, "karat_store", "stamp", "VARCHAR(32)")
    there = {one["name"] for one in inspect(connection).get_indexes("karat_evaluations")}
    for column in ("report_id", "verdict"):
        named = f"ix_karat_evaluations_{column}"
        if named not in there:
            connection.execute(text(f"CREATE INDEX {named} ON karat_evaluations ({column})"))
    metadata = MetaData()
    # Only there to be pointed at.
    Table("karat_reports", metadata, Column("id", Integer, primary_key=True))
    made = [_parts(metadata), *_labels(metadata)]
    metadata.create_all(connection, tables=made)
    for index in [index for table in made for index in table.indexes]:
        index.create(connection, checkfirst=True)


def _parts(metadata: MetaData) -> Table:
    return Table(
        "karat_parts",
        metadata,
        Column("report_id", ForeignKey("karat_reports.id"), primary_key=True),
        Column("name", String(255), primary_key=True),
        Column("data", LargeBinary(2**32 - 1), nullable=False),
    )


def _labels(metadata: MetaData) -> list[Table]:
    words = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
    moment = DateTime(timezone=True)
    sets = Table(
        "karat_label_sets",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("name", String(255), nullable=False),
        Column("made_at", moment, nullable=False),
        Column("about", words, nullable=False),
        Column("digest", String(64), nullable=False, unique=True),
        Column("size", Integer, nullable=False),
        sqlite_autoincrement=True,
    )
    items = Table(
        "karat_label_items",
        metadata,
        Column("set_id", ForeignKey("karat_label_sets.id"), primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
        *(Column(name, words, nullable=False) for name in ("query_id", "item_id", "query")),
        *(Column(name, words, nullable=False) for name in ("text", "facts")),
    )
    judgments = Table(
        "karat_judgments",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("set_id", Integer, nullable=False),
        Column("position", Integer, nullable=False),
        Column("rater", String(255), nullable=False),
        Column("grade", Double),
        Column("rationale", words, nullable=False),
        Column("given_at", moment, nullable=False),
        Column("withdrawn_at", moment),
        ForeignKeyConstraint(
            ["set_id", "position"], ["karat_label_items.set_id", "karat_label_items.position"]
        ),
        Index("karat_judgments_by_rater", "set_id", "rater"),
        sqlite_autoincrement=True,
    )
    return [sets, items, judgments]


def sources(connection: Connection) -> None:
    """From version 2 to 3: judgments say where they come from; all before were people's."""
    _add_column(connection, "karat_judgments", "source", "VARCHAR(255) DEFAULT 'human' NOT NULL")


def _add_column(connection: Connection, table: str, name: str, kind: str) -> None:
    if name not in {one["name"] for one in inspect(connection).get_columns(table)}:
        connection.execute(text(f"ALTER TABLE {table} ADD COLUMN {name} {kind}"))


# MIGRATIONS[n] takes the tables of version n + 1 to those of version n + 2.
MIGRATIONS: list[Migration] = [parts_and_labels, sources]
