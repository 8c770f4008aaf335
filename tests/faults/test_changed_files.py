"""A file that changes while karat reads it: noticed, and no figure or digest of two states."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from .killing import FULL
from .worlds import lay_runs

FAULT = "a file replaced, overwritten, cut or added to"
CHANGED = "the file changed while it was being read; run again"


def replace(path: Path) -> None:
    """Another file takes its name, as careful writers do it; as long, and of the same age."""
    state = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.rename(path)


def overwrite(path: Path) -> None:
    """Other bytes in the same file, as many."""
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data[::-1])


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes()[-1000:])


def remove(path: Path) -> None:
    path.unlink()


CHANGES = (replace, overwrite, cut, append)


@pytest.fixture
def files(tmp_path, monkeypatch) -> Iterator[Path]:
    folder = lay_runs(tmp_path / "files", queries=10)
    monkeypatch.chdir(folder)
    # With one processor runs are read one after the other.
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})
    yield folder
    os.sched_setaffinity(0, usual)


def meanwhile(pipe: Path, change: Callable[[], None]) -> threading.Thread:
    """Change something when karat waits for a pipe, then let what was there come through it."""
    data = pipe.read_bytes()
    pipe.unlink()
    os.mkfifo(pipe)

    def send() -> None:
        # Opens when karat does.
        with pipe.open("wb") as file:
            change()
            file.write(data)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


# What is read before the second run, which comes through a pipe; the corpus is read later.
WITH = "eval old.trec new.trec --gold qrels.txt --queries queries.jsonl --quiet -o out.json"


@pytest.mark.parametrize("name", ["old.trec", "qrels.txt", "queries.jsonl"])
def test_what_changes_between_its_reading_and_its_digest(run, files, told, name):
    """The report would hold figures of the old bytes beside the digest of the new ones."""
    Path("out.json").write_text("as it was")
    before = {path: path.read_bytes() for path in (files / name, files / "new.trec")}
    for change in CHANGES:
        for path, data in before.items():
            path.unlink()
            path.write_bytes(data)
        thread = meanwhile(files / "new.trec", lambda change=change: change(files / name))
        done = run(*WITH.split())
        thread.join()
        assert (done.code, done.err) == (2, f"karat: {name}: {CHANGED}\n"), change
        assert Path("out.json").read_text() == "as it was"
    during = f"eval: {name} before its digest is taken"
    told(FAULT, during, len(CHANGES), "refused, nothing written")


def test_what_changes_before_it_is_opened_is_read_as_it_is_then(run, files):
    old = (files / "old.trec").read_bytes()
    thread = meanwhile(files / "old.trec", lambda: cut(files / "new.trec"))
    done = run(*WITH.replace(" -o out.json", " --json").split())
    thread.join()
    assert done.code == 0
    inputs = json.loads(done.out)["inputs"]
    digests = [one["sha256"] for one in inputs["runs"]]
    read = [old, Path("new.trec").read_bytes()]
    assert digests == [hashlib.sha256(data).hexdigest() for data in read]


def test_a_file_that_was_only_looked_at_again_has_not_changed(run, files):
    """What reads it, or gives it its name anew, is none of our business; a backup does both."""
    thread = meanwhile(files / "new.trec", (files / "old.trec").read_bytes)
    assert run(*WITH.split()).code == 0
    thread.join()


def test_a_corpus_that_changes_while_its_index_is_made(run, files, told, times):
    """An index under the digest of one corpus with the items of another would stay wrong."""
    words = "triage old.trec --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl -o t.md"
    # Large enough that its reading takes a while.
    rows = [{"id": f"x{i}", "text": f"word{i} " * 20} for i in range(20_000)]
    path = files / "corpus.jsonl"
    whole = path.read_bytes() + "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    for change in CHANGES[: times(1, len(CHANGES))]:
        path.write_bytes(whole)
        code, err = changed_inside(words, path, change)
        assert (code, err) == (2, f"karat: corpus.jsonl: {CHANGED}\n"), change
        assert not Path("t.md").exists()
        assert not list(files.glob(".karat/index/*"))
    told(FAULT, "triage: the corpus", times(1, len(CHANGES)), "refused, no index kept")


ROWS, WIDE = 60_000, "x" * 250
LAYOUTS = {
    "trec": lambda q, d, s: f"q{q} Q0 {d} 1 {s} x",
    "csv": lambda q, d, s: f"q{q},{d},{s}",
    "jsonl": lambda q, d, s: f'{{"query_id": "q{q}-{d}", "topk": [{{"id": "d{q}"}}]}}',
}
# In the short form one or two of them; in full all, several times.
FEW = {"trec": (cut, append), "csv": (cut,), "jsonl": (overwrite,), "parquet": (replace,)}


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Runs that are read in more than one piece, and gold for them."""
    folder = tmp_path_factory.mktemp("large")
    rows = [(at // 100, f"d{at}-{WIDE}", 1 / (1 + at % 100)) for at in range(ROWS)]
    for name, line in LAYOUTS.items():
        head = ["query_id,item_id,score\n"] if name == "csv" else []
        (folder / f"run.{name}").write_text("".join([*head, *(f"{line(*row)}\n" for row in rows)]))
    pl.read_csv(folder / "run.csv").write_parquet(folder / "run.parquet", row_group_size=5_000)
    (folder / "qrels.txt").write_text("q0 0 d0 1\nq9 0 d9 1\n")
    return folder


@pytest.mark.parametrize("name", FEW)
def test_what_changes_in_the_middle_of_its_reading(large, tmp_path, told, name):
    """Stopped there, changed, and let go on; without a digest in the output, it is noticed too."""
    path = tmp_path / f"run.{name}"
    words = f"eval {path} --gold {large / 'qrels.txt'} -m RR@5"
    # Polars says nothing of how far it is.
    least = 0 if name in ("csv", "parquet") else 1
    changes = 5 * (*CHANGES, remove) if FULL else FEW[name]
    for change in changes:
        path.write_bytes((large / path.name).read_bytes())
        code, err = changed_inside(words, path, change, least=least)
        assert (code, err) == (2, f"karat: {path.name}: {CHANGED}\n"), change
    told(FAULT, f"eval: in the middle of .{name}", len(changes), "refused")


def changed_inside(
    words: str, path: Path, change: Callable[[Path], None], *, least: int = 1
) -> tuple[int, str]:
    """Stop karat while it is in the middle of a file, change that, and let it go on.

    With 0 for the least bytes that it has read, anywhere between opening and closing it. The
    exit code, and what it said; on a busy machine it may take more than one go to catch it.
    """
    before = set(path.parent.iterdir())
    command, pipe = [sys.executable, "-m", "karat", *words.split()], subprocess.PIPE
    for _ in range(20):
        going = subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL)
        try:
            if stopped_inside(going, path, least):
                change(path)
                going.send_signal(signal.SIGCONT)
                _, err = going.communicate(timeout=300)
                return going.returncode, err.decode()
            _, err = going.communicate(timeout=300)
            assert going.returncode == 0, err
            # What an undisturbed one made is no part of the trial.
            shutil.rmtree(path.parent / ".karat", ignore_errors=True)
            for made in set(path.parent.iterdir()) - before:
                made.unlink()
        finally:
            going.kill()
            going.wait()
    raise AssertionError("it was never met while it read the file")


def stopped_inside(going: subprocess.Popen[bytes], path: Path, least: int) -> bool:
    """Whether a process could be stopped while it had read a part of the file."""
    size = path.stat().st_size
    while going.poll() is None:
        if least <= place_in(going.pid, path) < size:
            going.send_signal(signal.SIGSTOP)
            if least <= place_in(going.pid, path) < size:
                return True
            going.send_signal(signal.SIGCONT)
        time.sleep(0.0005)
    return False


def place_in(pid: int, path: Path) -> int:
    """How many bytes of a file a process has read, by any of its open files; -1 for none."""
    places = [-1]
    # A file may be closed, or the process end, while it is looked at.
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if link.readlink() == path:
                    told = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
                    places.append(int(told.split()[1]))
    return max(places)
