"""A folder that takes nothing: said before any work, nothing changes, what can be read is read."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .services import Service
from .small_disk import can_mount, mounted, read_only
from .worlds import lay_pool, lay_runs

KINDS = ("a disk that is read only", "a folder of somebody else's")
EVAL = "eval old.trec new.trec --gold qrels.txt"
MORE = "--queries queries.jsonl --corpus corpus.jsonl"
# What each command says of a folder that it may not write to, and of which file.
CLOSED = {
    f"{EVAL} -o out.json": "output 'out.json': its folder may not be written to; choose another",
    f"{EVAL} -o deep/out.csv": "output 'deep/out.csv': its folder may not be written to; choose",
    f"pool old.trec new.trec {MORE} -o pool.jsonl": "output 'pool.jsonl': its folder may not be",
    "convert old.trec run.parquet": "run.parquet: cannot be written: ",
    "convert old.trec run.jsonl": "run.jsonl: cannot be written: ",
    "init minimal laid": "laid/README.md: cannot be written: ",
    "search": "runs/words.jsonl: its folder may not be written to; choose another place",
    "run -o out.md": "output 'out.md': its folder may not be written to; choose another place",
    f"{EVAL} --save": ".karat/history.db: may not be written to",
    "labels import qrels.txt --rater Ana --name x": ".karat/history.db: may not be written to",
    "history --show 1 --tag-as x": ".karat/history.db: may not be written to",
    "judge few/pool.jsonl --judge overlap -o labels.jsonl": "labels.jsonl: its folder may not be",
}
READING = (
    "history",
    "history --show main:old",
    "eval new.trec --gold qrels.txt",
    "compare new.trec --gold qrels.txt --baseline main:old",
    "triage old.trec --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl",
)


@dataclass(frozen=True)
class Closable:
    """A folder with files in it that can be closed for a while."""

    kind: str
    path: Path
    closed: Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=KINDS if can_mount() else KINDS[1:])
def folder(request, monkeypatch) -> Iterator[Closable]:
    with ExitStack() as after:
        # What pytest makes lets nobody else in.
        above = Path(tempfile.mkdtemp())
        after.callback(shutil.rmtree, above)
        above.chmod(0o755)
        path = above / "files"
        path.mkdir()
        if request.param == KINDS[0]:
            after.enter_context(mounted(path))
        shutil.copytree(lay_runs(above / "laid", queries=12), path, dirs_exist_ok=True)
        lay_pool(path / "few", 4)
        (path / "karat.yaml").write_text(
            "queries: queries.jsonl\ncorpus: corpus.jsonl\ngold: qrels.txt\n"
            "systems:\n  words: {retriever: bow, k: 10}\n"
        )
        before = Path.cwd()
        after.callback(os.chdir, before)
        monkeypatch.chdir(path)
        shut = read_only if request.param == KINDS[0] else not_ours
        yield Closable(request.param, path, lambda: shut(path))


@contextmanager
def not_ours(path: Path) -> Iterator[None]:
    """For a while the folder is somebody else's, who lets others look; root becomes a guest."""
    folders = [path, *(one for one in path.rglob("*") if one.is_dir())]
    with ExitStack() as after:
        for one in folders:
            after.callback(one.chmod, one.stat().st_mode & 0o7777)
            one.chmod(0o555)
        if os.geteuid() == 0:
            guest = pwd.getpwnam("nobody").pw_uid
            os.setresuid(guest, guest, 0)
            after.callback(os.setresuid, 0, 0, 0)
        yield


def everything(path: Path) -> dict[str, bytes]:
    files = (one for one in sorted(path.rglob("*")) if one.is_file())
    return {one.relative_to(path).as_posix(): one.read_bytes() for one in files}


def called(run, words: str):
    return run(*words.split(), *([] if words.startswith(("convert", "history")) else ["--quiet"]))


def test_what_would_be_written_is_refused_and_nothing_changes(run, folder, told):
    """For the first time, and again where an earlier one left its files."""
    first = everything(folder.path)
    # Once undisturbed; also, a guest cannot import what is root's later on.
    for words in CLOSED:
        assert called(run, words).code == 0, words
    whole = everything(folder.path)
    for name in whole.keys() - first.keys():
        (folder.path / name).unlink()
    refuse_all(run, folder, [words for words in CLOSED if not words.startswith("history")])
    for words in CLOSED:
        assert called(run, words).code == 0, words
    assert lasting(everything(folder.path)) == lasting(whole)
    # The files of a recipe that are there already need not be written.
    refuse_all(run, folder, [words for words in CLOSED if not words.startswith("init")])
    told(folder.kind, "eval, save, search, judge, pool, …", 2 * len(CLOSED) - 2, "nothing changed")


def refuse_all(run, folder: Closable, commands: list[str]) -> None:
    before = everything(folder.path)
    for words in commands:
        with folder.closed():
            done = called(run, words)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith(f"karat: {CLOSED[words]}"), words
        assert done.err.count("\n") == 1, words
        assert everything(folder.path) == before, words


def lasting(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files without those that hold times: a store, and the report on a log with latencies."""
    return {
        name: data
        for name, data in files.items()
        if not name.startswith((".karat/", "runs/")) and name != "out.md"
    }


def test_what_only_reads_goes_on(run, folder, told, caplog):
    """A store and its baseline too; an index that cannot be kept is told of, and made each time."""
    assert run(*EVAL.split(), "--save", "--tag", "main", "--quiet").code == 0
    open_ = {words: run(*words.split()) for words in READING}
    shutil.rmtree(".karat/index", ignore_errors=True)
    before = everything(folder.path)
    with folder.closed():
        shut = {words: run(*words.split()) for words in READING}
    for words in READING:
        assert (shut[words].code, shut[words].out) == (open_[words].code, open_[words].out), words
    assert "the index of corpus.jsonl cannot be kept in .karat/index" in caplog.text
    assert everything(folder.path) == before
    told(folder.kind, "reading stored history, triage", len(READING), "the same as ever")


def test_no_judgment_is_paid_for_that_could_not_be_kept(run, folder, told):
    Path("prompt.md").write_text("{query}\n{text}\n")
    words = ("judge", "few/pool.jsonl", "--model", "m", "--prompt", "prompt.md", "--quiet")
    with Service() as service, tempfile.TemporaryDirectory() as elsewhere:
        Path(elsewhere).chmod(0o777)
        words = (*words, "--url", f"{service.url}/v1")
        for output in ("labels.jsonl", f"{elsewhere}/labels.jsonl"):
            # Once to have all imported.
            assert run(*words, "-o", "first.jsonl", "--restart").code == 0
            shutil.rmtree(".karat")
            service.asked.clear()
            with folder.closed():
                done = run(*words, "-o", output)
            assert done.code == 2
            assert "its folder may not be written to; choose another place" in done.err
            assert not service.asked
            assert not Path(output).exists()
    told(folder.kind, "judge: labels, or the cache", 2, "refused before the first call")
