"""What can go wrong with a store, each as one line that never holds a password."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.dialects import mysql
from sqlalchemy.schema import CreateTable

from karat.errors import InputError, KaratError, MissingExtraError
from karat.store import Store, schema
from karat.store.place import place_of

from .conftest import small

SECRET = "s3cret-pa55word"


def refused(where: object) -> str:
    """The one line that a save gives, with nothing behind it that would tell more."""
    with pytest.raises(KaratError) as caught, Store.open(where) as store:
        store.save(*small())
    told = str(caught.value)
    assert "\n" not in told
    shown = "".join(traceback.format_exception(caught.value))
    assert "sqlalchemy" not in shown.partition("Traceback")[0]
    assert SECRET not in shown
    assert SECRET not in repr(caught.value.__dict__)
    return told


def test_a_file_that_is_no_database(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but a text of some length\n" * 100)
    assert refused(file) == f"{file}: is no SQLite database; give another file, or a URL"
    with pytest.raises(InputError, match="is no SQLite database"), Store.open(file) as store:
        store.evaluations()
    with pytest.raises(InputError, match="is no SQLite database"), Store.open(file) as store:
        store.check()
    assert file.read_text().startswith("not a database")


def test_a_database_of_somebody_else_s_holds_no_history(tmp_path):
    file = tmp_path / "music.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    with pytest.raises(InputError, match="no history here"), Store.open(file) as store:
        store.evaluations()


def test_a_damaged_database(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    assert refused(file) == f"{file}: is damaged; restore it from a copy"


def test_a_folder_instead_of_a_file(tmp_path):
    assert refused(tmp_path) == f"{tmp_path}: is a folder; name a file in it"
    with pytest.raises(InputError) as caught, Store.open(tmp_path) as store:
        store.evaluations()
    assert str(caught.value) == f"{tmp_path}: is a folder; name a file in it"


def test_a_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "a").write_text("")
    where = tmp_path / "a" / "history.db"
    assert refused(where) == f"{where}: cannot be made: a is no folder"


def test_a_place_where_nobody_may_write():
    assert refused("/proc/history.db").startswith("/proc/history.db: cannot be used: ")
    assert refused("/proc/karat/history.db").startswith("/proc/karat/history.db: cannot be used: ")


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder with a store in it that only its owner may write to, and others read."""
    folder = Path(tempfile.mkdtemp())
    with Store.open(folder / "history.db") as store:
        store.save(*small())
    (folder / "history.db").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def as_a_guest() -> Iterator[None]:
    """For a while nobody in particular, since everything is open to root."""
    if os.geteuid() != 0:
        yield
        return
    guest = pwd.getpwnam("nobody").pw_uid
    os.setresuid(guest, guest, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_a_store_in_a_read_only_folder_can_be_read_and_not_written(locked):
    file = locked / "history.db"
    told = []
    with Store.open(file) as store:
        # What is imported late must be there before, since a guest cannot read root's Python.
        before = store.baseline("1").scores
        with as_a_guest():
            found = store.baseline("1")
            for use in (
                store.check,
                lambda: store.save([found.scores], {}),
                lambda: store.tag(1, ["x"]),
            ):
                try:
                    use()
                except KaratError as error:
                    told.append(str(error))
    assert found.scores.means() == before.means()
    assert told == [f"{file}: may not be written to"] * 3
    assert [path.name for path in locked.iterdir()] == ["history.db"]


def test_a_new_store_in_a_read_only_folder(locked):
    file = locked / "deep" / "new.db"
    scores, report = small()
    with as_a_guest(), pytest.raises(InputError) as caught, Store.open(file) as store:
        store.save(scores, report)
    assert str(caught.value) == f"{file}: may not be written to"


def test_a_full_disk_keeps_what_was_saved_before(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
        pages = file.stat().st_size // 4096

        def fill(connection: sqlite3.Connection, record: object) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(Engine, "connect", fill)
        try:
            with pytest.raises(InputError) as caught:
                store.save(*small("a" * 5000))
        finally:
            event.remove(Engine, "connect", fill)
        assert str(caught.value) == f"{file}: cannot be written: the disk is full"
        before = len(store.evaluations())
        store.save(*small())
        assert len(store.evaluations()) == before + 1


def test_a_file_that_may_grow_no_further(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        try:
            assert refused(file).startswith(f"{file}: cannot be read or written: the disk gave")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(store.evaluations()) == 1


def test_a_store_that_somebody_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("karat.store.place._BUSY_SECONDS", 0.1)
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
    holding = sqlite3.connect(file, isolation_level=None)
    holding.execute("BEGIN IMMEDIATE")
    assert refused(file) == f"{file}: is in use by another process; try again"
    with Store.open(file) as store:
        assert len(store.evaluations()) == 1
    holding.close()


def test_a_server_that_is_down():
    told = refused(f"postgresql://ann:{SECRET}@127.0.0.1:1/karat")
    assert told.startswith("postgresql://127.0.0.1:1/karat: cannot be used: connection")
    assert "ann:" not in told


def test_a_database_that_is_not_there(server):
    told = refused(server.get_uri(database="nowhere").replace(":@", f":{SECRET}@"))
    assert told.startswith("postgresql:///nowhere: cannot be used: connection failed")
    assert 'database "nowhere" does not exist' in told


def test_a_user_who_may_not_make_tables(server, postgres):
    schema = postgres.rpartition("%3D")[2]
    server.psql(f"CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA {schema} TO guest;")
    told = refused(postgres.replace("postgres:@", f"guest:{SECRET}@"))
    assert told == f"postgresql:///postgres: cannot be used: permission denied for schema {schema}"


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (f"postgresql://ann:{SECRET}@host:port/karat", "the store's URL cannot be read; write it"),
        (f"postgresql://ann:{SECRET}@x@host/karat", "has more than one @; in a password write it"),
        (f"postgresql:///ann:{SECRET}@host/karat", "an @ in its database; are there too many"),
        (f"sqlite://ann:{SECRET}@host/karat", "a URL of SQLite has three slashes, as in sqlite:"),
        ("sqlite://history.db", "a URL of SQLite has three slashes, as in sqlite:///history.db"),
        ("sqlite:///file:x.db?mode=memory&uri=true", "by its path alone, without file:"),
        (f"foo://ann:{SECRET}@host/karat", "unknown kind of store 'foo'; known: sqlite, postgres"),
        (
            f"postgresql+foo://ann:{SECRET}@host/x",
            "unknown driver of postgresql 'foo'; known:",
        ),
        (f"postgresql://127.0.0.1:1/x?password={SECRET}", "postgresql://127.0.0.1:1/x: cannot be"),
        (f"postgresql://127.0.0.1:1/x?{SECRET}=1", "postgresql://127.0.0.1:1/x: cannot be used"),
        ("://", "the store's URL cannot be read"),
    ],
)
def test_a_url_that_leads_nowhere(where, told):
    assert told in refused(where)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (f"postgresql:/ann:{SECRET}@host/karat", "looks like a URL but is none; write postgresql"),
        (f"PostgreSQL:/ann:{SECRET}@host/karat", "looks like a URL but is none"),
        (f"postgresql:ann:{SECRET}@host/karat", "looks like a URL but is none"),
        (f"postgresql//ann:{SECRET}@host/karat", "looks like a URL but is none"),
        (f"postgresql:\\\\ann:{SECRET}@host", "looks like a URL but is none"),
        (f"ann:{SECRET}@host/karat", "looks like a URL but is none"),
        (f"ann:{SECRET[:4]}/{SECRET}@host/karat", "looks like a URL but is none"),
        (Path(f"postgresql://ann:{SECRET}@host/karat"), "looks like a URL but is none"),
        ("postgresql+psycopg:/host/karat", "looks like a URL but is none"),
        ("sqlite:history.db", "looks like a URL but is none"),
        ("sqlite:/history.db", "looks like a URL but is none"),
        ("mysql:/host/karat", "looks like a URL but is none"),
        (f"file:{SECRET}.db?mode=ro", "the store's file is named by its path alone, without file:"),
        (f"file:/tmp/{SECRET}.db", "the store's file is named by its path alone, without file:"),
        (":memory:", "a store in memory keeps nothing; name a file"),
    ],
)
def test_a_mistyped_url_is_not_taken_for_a_file(where, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told in refused(where)
    monkeypatch.setenv("KARAT_STORE", str(where))
    assert told in refused(None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["./a:b@c.db", "2026-01:main.db", "team@work.db", "c:d/x.db"])
def test_a_file_name_may_have_a_colon_or_an_at(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store.open(name) as store:
        store.save(*small())
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("version", ["0", "-1", "'one'"])
def test_a_store_of_a_version_that_never_was(tmp_path, version):
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
    connection = sqlite3.connect(file)
    connection.execute(f"UPDATE karat_store SET version = {version}")
    connection.commit()
    connection.close()
    told = f"{file}: says that it is of store version {version}, which there never was; restore it"
    assert refused(file).startswith(told)
    with Store.open(file) as store:
        for use in (store.check, store.evaluations):
            with pytest.raises(InputError, match="which there never was"):
                use()


def test_a_password_that_the_server_repeats_is_not_passed_on(server):
    url = server.get_uri(database="nowhere").replace(":@", ":nowhere@")
    with pytest.raises(InputError) as caught, Store.open(url) as store:
        store.check()
    told = str(caught.value)
    assert told.endswith("cannot be used: check the host, the database, the user and the password")


def test_a_driver_that_is_not_installed():
    with pytest.raises(MissingExtraError, match=r"^the store needs oracledb; install it with: pip"):
        Store.open(f"oracle+oracledb://ann:{SECRET}@host/x")


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("sqlalchemy", "history needs SQLAlchemy; install it with: pip install 'karat[store]'"),
        (
            "psycopg",
            "a store on PostgreSQL needs psycopg; install it with: pip install 'karat[postgres]'",
        ),
    ],
)
def test_an_extra_that_is_not_installed_says_how_to_install_it(missing, told):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from karat.errors import MissingExtraError
try:
    from karat.store import Store
    Store.open("postgresql://ann:{SECRET}@host/x")
except MissingExtraError as error:
    print(error, end="")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (told, "")


def test_a_store_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KARAT_STORE", raising=False)
    assert place_of().shown == ".karat/history.db"
    monkeypatch.setenv("KARAT_STORE", "")
    assert place_of(None).shown == ".karat/history.db"
    monkeypatch.setenv("KARAT_STORE", "team.db")
    assert place_of().shown == "team.db"
    assert place_of("mine.db").shown == "mine.db"
    assert place_of("~/mine.db").path == Path.home() / "mine.db"
    assert place_of("sqlite:///other.db").path == Path("other.db")
    assert place_of(f"postgres://ann:{SECRET}@host/db?sslmode=require").shown == (
        "postgresql://host/db"
    )
    with Store.open() as store:
        store.save(*small())
    assert (tmp_path / "team.db").is_file()


def test_a_store_can_live_in_memory():
    with Store.open("sqlite://") as store:
        store.save(*small())
        assert store.baseline("1").scores.means() == small()[0][0].means()
        assert not store.lasting


def test_a_file_name_may_hold_what_means_something_in_a_url(tmp_path):
    file = tmp_path / "100% of it? #1.db"
    with Store.open(file) as store:
        store.save(*small())
    assert [path.name for path in tmp_path.iterdir()] == ["100% of it? #1.db"]


def test_readers_read_while_one_writes(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
        with store._writing(), Store.open(file) as other:
            assert len(other.evaluations()) == 1
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_other_databases_get_columns_that_are_wide_enough():
    made = str(CreateTable(schema.SCORES).compile(dialect=mysql.dialect()))
    assert "BLOB(4294967295)" in made
    for table in schema.METADATA.sorted_tables:
        assert " TEXT" not in str(CreateTable(table).compile(dialect=mysql.dialect()))
