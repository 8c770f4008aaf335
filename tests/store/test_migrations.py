"""Stores of older versions: brought up to date by whoever uses them first."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, inspect, text

from karat.errors import InputError, KaratError
from karat.store import LabelItem, NewJudgment, NotStoredError, Store, schema

from . import version_1
from .conftest import small
from .test_database_errors import as_a_guest

ITEMS = [LabelItem("q1", "a", "where is it?", "here")]


@pytest.fixture
def old(where: str) -> str:
    """The place of a store of version 1."""
    if "://" in where:
        version_1.make(where.replace("postgresql://", "postgresql+psycopg://"))
    else:
        Path(where).parent.mkdir()
        version_1.make(f"sqlite:///{where}")
    return where


def version(store: Store) -> int:
    with store._database.writers.begin() as connection:
        return connection.execute(text("SELECT version FROM karat_store")).scalar_one()


def check_read(store: Store) -> None:
    """Everything that version 1 holds."""
    dense, bm25 = store.evaluations()
    assert (bm25.id, bm25.system, bm25.report_id, bm25.tags) == (1, "bm25", 1, ("main",))
    assert (dense.id, dense.note, dense.verdict) == (2, "as it was", "pass")
    assert bm25.saved_at == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert bm25.summaries["RR"].ci == (0.5, 1.0)
    added = {"gain": "linear", "repeats": "keep", "short_lists": "complete"}
    assert bm25.conventions == {**added, **version_1.CONVENTIONS}
    assert store.baseline("main").scores.values("RR").tolist() == [1.0, 0.5]
    assert [point.summary.mean for point in store.trend("RR")] == [0.75, 0.75]
    assert store.report(1) == {"verdict": "pass"}
    assert [one.id for one in store.together(1)] == [1, 2]
    assert store.listed(search="MAIN").total == 1
    assert store.names().tags == ["main"]


def test_a_store_of_version_1_is_brought_up_to_date_when_it_is_read(old):
    with Store.open(old) as store:
        assert version(store) == 1
        check_read(store)
        assert version(store) == schema.newest() == 3
        assert store.part(1, "head") is None
        assert store.label_sets() == []
        for ask in (store.label_set, store.label_items, store.judgments):
            with pytest.raises(NotStoredError, match=r"^no label set 1 in .*; karat labels list"):
                ask(1)
        assert store.stamp() == store.stamp()
        store.check()


def test_the_first_save_brings_it_up_to_date_and_keeps_everything(old):
    with Store.open(old) as store:
        ids = store.save(*small(), parts={"head": b"{}"})
        assert ids == [3]
        assert version(store) == schema.newest() == 3
        assert store.part(2, "head") == b"{}"
        assert store.part(1, "head") is None
    with Store.open(old) as store:
        assert [one.id for one in store.evaluations()] == [3, 2, 1]
        assert store.baseline("main").scores.values("RR").tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.tag(1, ["good"]),
        lambda store: store.add_label_set("first", ITEMS),
    ],
    ids=["tag", "label set"],
)
def test_so_does_whatever_else_is_written(old, write):
    with Store.open(old) as store:
        write(store)
        assert version(store) == 3
        assert len(store.evaluations()) == 2


@pytest.fixture
def labelled(old: str) -> str:
    """A store of version 2 with two judgments, one of them taken back."""
    engine = create_engine(
        old.replace("postgresql://", "postgresql+psycopg://")
        if "://" in old
        else f"sqlite:///{old}"
    )
    words = "query_id, item_id, query, text, facts"
    given = "set_id, position, rater, grade, rationale, given_at, withdrawn_at"
    moment = "'2026-01-02 08:00:00.000000'" + ("::timestamptz" if "://" in old else "")
    with engine.begin() as connection:
        if "://" in old:
            connection.execute(text("SET TIME ZONE 'UTC'"))
        schema.MIGRATIONS[0](connection)
        # The migration makes the tables of today; version 2 had no sources.
        connection.execute(text("ALTER TABLE karat_judgments DROP COLUMN source"))
        connection.execute(text("UPDATE karat_store SET version = 2"))
        for table, names, values in (
            ("label_sets", "name, made_at, about, digest, size", f"'x', {moment}, '', 'a', 1"),
            (
                "label_items",
                f"set_id, position, {words}",
                "1, 0, 'q1', 'a', 'where?', 'here', '{}'",
            ),
            ("judgments", given, f"1, 0, 'Ana', 2, 'says so', {moment}, NULL"),
            ("judgments", given, f"1, 0, 'Ana', NULL, '', {moment}, {moment}"),
        ):
            connection.execute(text(f"INSERT INTO karat_{table} ({names}) VALUES ({values})"))
    engine.dispose()
    return old


def test_judgments_of_version_2_are_people_s(labelled):
    with Store.open(labelled) as store:
        (said,) = store.judgments(1)
        assert (said.rater, said.grade, said.rationale, said.source) == (
            "Ana",
            2,
            "says so",
            "human",
        )
        assert said.given_at == datetime(2026, 1, 2, 8, tzinfo=UTC)
        assert [one.source for one in store.judgments(1, every=True)] == ["human", "human"]
        assert store.judgments(1, rater="Ben") == []
        assert version(store) == 3
        check_read(store)


def test_version_2_is_brought_up_to_date_with_all_its_judgments(labelled, tmp_path, request):
    new = str(tmp_path / "new.db") if "://" not in labelled else request.getfixturevalue("another")
    with Store.open(labelled) as store, Store.open(new) as made:
        before = store.judgments(1, every=True)
        given = store.judge(1, 0, "overlap", 1, source="judge")
        assert version(store) == 3
        assert store.judgments(1, every=True) == [*before, given]
        assert [one.source for one in store.judgments(1)] == ["human", "judge"]
        assert given.id == 3
        made.save(*small())
        assert tables(store) == tables(made)
        check_read(store)


def test_what_is_refused_upgrades_nothing(old):
    with Store.open(old) as store:
        for write in (
            lambda: store.tag(9, ["good"]),
            lambda: store.judge(1, 0, "Ana", 1),
            lambda: store.take_back(1, "Ana"),
        ):
            with pytest.raises(NotStoredError):
                write()
        assert version(store) == 1
        check_read(store)


def tables(store: Store) -> dict[str, object]:
    """What the database itself says about each table."""
    found: dict[str, object] = {}
    with store._database.readers.connect() as connection:
        told = inspect(connection)
        for table in sorted(name for name in told.get_table_names() if name.startswith("karat_")):
            columns = told.get_columns(table)
            found[table] = [
                [(one["name"], str(one["type"]), one["nullable"]) for one in columns],
                told.get_pk_constraint(table)["constrained_columns"],
                sorted((one["name"], one["column_names"]) for one in told.get_indexes(table)),
                sorted(one["column_names"] for one in told.get_unique_constraints(table)),
                sorted(
                    (one["constrained_columns"], one["referred_table"], one["referred_columns"])
                    for one in told.get_foreign_keys(table)
                ),
            ]
    return found


def test_an_upgraded_store_has_the_tables_of_a_new_one(old, tmp_path, request):
    is_file = "://" not in old
    new = str(tmp_path / "new.db") if is_file else request.getfixturevalue("another")
    with Store.open(old) as upgraded, Store.open(new) as made:
        upgraded.tag(1, ["x"])
        made.save(*small())
        assert tables(upgraded) == tables(made)
        assert len(tables(made)) == 10


@pytest.fixture
def another(server) -> str:
    """A second empty schema."""
    server.psql("CREATE SCHEMA IF NOT EXISTS karat_another;")
    server.psql("DROP SCHEMA karat_another CASCADE; CREATE SCHEMA karat_another;")
    return f"{server.get_uri()}&options=-csearch_path%3Dkarat_another"


def test_a_number_that_was_given_away_is_not_given_again_after_an_upgrade(tmp_path):
    file = tmp_path / "history.db"
    version_1.make(f"sqlite:///{file}")
    with Store.open(file) as store:
        store.add_label_set("first", ITEMS)
    with sqlite3.connect(file) as connection:
        made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    connection.close()
    for table in ("karat_label_sets", "karat_judgments"):
        assert "AUTOINCREMENT" in made[table]


def test_a_migration_that_fails_leaves_the_store_as_it_was(old, monkeypatch):
    whole = schema.MIGRATIONS[0]

    def half(connection):
        whole(connection)
        connection.execute(text("SELECT nonsense FROM nowhere"))

    with Store.open(old) as store:
        with monkeypatch.context() as patch:
            patch.setattr(schema, "MIGRATIONS", [half])
            with pytest.raises(InputError):
                store.save(*small())
        assert version(store) == 1
        assert "karat_parts" not in tables(store)
        check_read(store)
        store.save(*small())
        assert version(store) == 3


@pytest.mark.parametrize("said", [1, 2])
def test_tables_that_are_newer_than_the_version_says_are_kept(where, said):
    with Store.open(where) as store:
        store.save(*small())
        own = store.add_judged_set("first", ITEMS, [NewJudgment(0, "Ana", 2)])
        with store._database.writers.begin() as connection:
            connection.execute(text(f"UPDATE karat_store SET version = {said}"))
        before = tables(store)
    with Store.open(where) as store:
        store.tag(1, ["good"])
        assert version(store) == 3
        assert tables(store) == before
        assert [one.grade for one in store.judgments(own.set.id)] == [2]


@pytest.mark.parametrize("lost", ["DELETE FROM karat_store", "DROP TABLE karat_store"])
def test_tables_without_their_version_are_refused_and_left_alone(old, lost):
    with Store.open(old) as store:
        with store._database.writers.begin() as connection:
            connection.execute(text(lost))
        before = tables(store)
        with pytest.raises(InputError, match="not the version that they are of; restore it"):
            store.save(*small())
        assert tables(store) == before


def test_an_upgrade_that_was_broken_off_anywhere_is_finished(tmp_path):
    """As a database leaves it that keeps each change to its tables by itself."""
    statements: list[str] = []
    whole = tmp_path / "whole.db"
    version_1.make(f"sqlite:///{whole}")
    with Store.open(whole) as store:

        @event.listens_for(store._database.writers, "before_cursor_execute")
        def hear(connection, cursor, statement, *_):
            if statement.split()[0] in ("ALTER", "CREATE"):
                statements.append(statement)

        store.tag(1, ["x"])
        wanted = tables(store)
    assert len(statements) >= 8
    for many in range(1, len(statements) + 1):
        half = tmp_path / f"half-{many}.db"
        version_1.make(f"sqlite:///{half}")
        with closing(sqlite3.connect(half)) as connection:
            for statement in statements[:many]:
                connection.execute(statement)
            connection.commit()
        with Store.open(half) as store:
            store.tag(1, ["x"])
            assert version(store) == 3
            assert tables(store) == wanted


def test_processes_that_upgrade_at_once_do_it_once(old):
    code = """
import sys
from karat.store import Store
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    store.tag(1, [sys.argv[2]])
"""
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, old, tag], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for tag in ("one", "two")
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in both] == ["", ""]
    with Store.open(old) as store:
        assert store.evaluations()[1].tags == ("main", "one", "two")
        assert version(store) == 3


def test_a_store_of_version_1_that_may_not_be_written_is_refused():
    folder = Path(tempfile.mkdtemp())
    file = folder / "history.db"
    version_1.make(f"sqlite:///{file}")
    before = file.read_bytes()
    file.chmod(0o444)
    folder.chmod(0o555)
    refusals = []
    try:
        with Store.open(file) as store:
            # What is imported late must be there before, since a guest cannot read root's Python.
            with pytest.raises(NotStoredError):
                store.tag(9, ["x"])
            store.close()
            with as_a_guest():
                for use in (store.check, store.evaluations, lambda: store.tag(1, ["x"])):
                    try:
                        use()
                    except KaratError as error:
                        refusals.append(str(error))
            store.close()
        assert refusals == [f"{file}: may not be written to"] * 3
        assert file.read_bytes() == before
        assert [path.name for path in folder.iterdir()] == ["history.db"]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
