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
import time
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from karat.errors import InputError, KaratError, UsageError
from karat.store import Store
from karat.store.database import store_address

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
    before = file.read_bytes()
    told = "is a database of another program .it has a table 'songs'.; name a file of its own"
    with pytest.raises(InputError, match=told), Store.open(file) as store:
        store.save(*small())
    with closing(sqlite3.connect(file)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert names == [("songs",)]
    assert len(file.read_bytes()) == len(before)


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
        # The disk is as it was again, which the connection in use does not know.
        store.close()
        told = "cannot be written: the disk is full; make room, then try again"
        assert str(caught.value) == f"{file}: {told}"
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
            assert "cannot be read or written; make room" in refused(file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(store.evaluations()) == 1


@contextmanager
def held(file: Path, *, alone: bool) -> Iterator[None]:
    """Another process writes, or keeps even readers out."""
    mode = "PRAGMA locking_mode = EXCLUSIVE; " if alone else ""
    code = f"""
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for one in "{mode}BEGIN IMMEDIATE; CREATE TABLE held (x)".split("; "):
    connection.execute(one)
print("held", flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


IN_USE = "is in use by another process; try again"


def test_a_store_that_somebody_writes_to_is_waited_for_as_long_as_told(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(file, patience=0.3) as store:
        store.save(*small())
        with held(file, alone=False):
            started = time.monotonic()
            with pytest.raises(InputError, match=IN_USE):
                store.save(*small())
            assert 0.2 < time.monotonic() - started < 5
            assert len(store.evaluations()) == 1
        store.save(*small())
        assert len(store.evaluations()) == 2


def test_a_store_that_somebody_has_alone_is_waited_for_as_long_as_told(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(file) as store:
        store.save(*small())
    with held(file, alone=True), Store.open(file, patience=0.3) as store:
        for use in (store.listed, store.stamp, store.check, lambda: store.save(*small())):
            started = time.monotonic()
            with pytest.raises(InputError) as caught:
                use()
            assert str(caught.value) == f"{file}: {IN_USE}"
            assert 0.2 < time.monotonic() - started < 5
    with Store.open(file, patience=0) as store:
        assert len(store.evaluations()) == 1


def test_a_lock_on_a_server_is_waited_for_as_long_as_told(postgres):
    with Store.open(postgres, patience=0.3) as store, Store.open(postgres) as other:
        store.save(*small())
        with other._database.writers.begin() as connection:
            connection.execute(text("LOCK TABLE karat_store IN ACCESS EXCLUSIVE MODE"))
            for use in (store.stamp, lambda: store.save(*small())):
                started = time.monotonic()
                with pytest.raises(InputError, match=f"^postgresql:///postgres: {IN_USE}$"):
                    use()
                assert 0.2 < time.monotonic() - started < 5
        assert len(store.evaluations()) == 1


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_patience_without_an_end_or_before_the_start_is_refused(tmp_path, seconds):
    with pytest.raises(UsageError, match=r"patience is .*; give seconds from 0 on"):
        Store.open(tmp_path / "history.db", patience=seconds)


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
        (f"postgresql://ann:{SECRET}@x@host/karat", "has one @ too many; in a password write it"),
        (f"postgresql:///ann:{SECRET}@host/karat", "has one @ too many"),
        (f"sqlite://ann:{SECRET}@host/karat", "a URL of SQLite has three slashes, as in sqlite:"),
        ("sqlite://history.db", "a URL of SQLite has three slashes, as in sqlite:///history.db"),
        ("sqlite:///file:x.db?mode=memory&uri=true", "looks like a URL but is none"),
        (f"foo://ann:{SECRET}@host/karat", "unknown kind of store 'foo'; known: sqlite, postgres"),
        (
            f"postgresql+foo://ann:{SECRET}@host/x",
            "unknown kind of store 'postgresql+foo'",
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
        (f"file:{SECRET}.db?mode=ro", "looks like a URL but is none"),
        (f"file:/tmp/{SECRET}.db", "looks like a URL but is none"),
        (":memory:", "looks like a URL but is none"),
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


@pytest.mark.parametrize("kind", ["oracle+oracledb", "mysql", "postgresql+psycopg2"])
def test_other_databases_and_drivers_are_refused(kind):
    with pytest.raises(UsageError, match="unknown kind of store"):
        Store.open(f"{kind}://ann:{SECRET}@host/x")


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
    assert store_address().name == ".karat/history.db"
    monkeypatch.setenv("KARAT_STORE", "")
    assert store_address(None).name == ".karat/history.db"
    monkeypatch.setenv("KARAT_STORE", "team.db")
    assert store_address().name == "team.db"
    assert store_address("mine.db").name == "mine.db"
    assert store_address("~/mine.db").path == Path.home() / "mine.db"
    assert store_address("sqlite:///other.db").path == Path("other.db")
    assert store_address(f"postgres://ann:{SECRET}@host/db?sslmode=require").name == (
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
        with store._database.writing(), Store.open(file) as other:
            assert len(other.evaluations()) == 1
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
