"""A disk without room: one line says so, nothing is half written, and what was saved stays."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from karat.store import Store

from .killing import FULL
from .services import Service
from .small_disk import KINDS, Disk, can_mount, small_disk
from .worlds import lay_pool, lay_runs

EVAL = "eval old.trec new.trec --gold qrels.txt"
MORE = "--queries queries.jsonl --corpus corpus.jsonl"
# What writes one file, and the file; html also keeps an index, which may take the room.
WRITING = {
    "eval -o json": (f"{EVAL} -o out.json", "out.json"),
    "eval -o json.gz": (f"{EVAL} -o out.json.gz", "out.json.gz"),
    "eval -o html": (f"{EVAL} {MORE} -o out.html", "out.html"),
    "eval -o csv": (f"{EVAL} -o out.csv", "out.csv"),
    "eval -o parquet": (f"{EVAL} -o out.parquet", "out.parquet"),
    "eval -o md": (f"{EVAL} -o out.md", "out.md"),
    "pool": (
        f"pool old.trec new.trec {MORE} -o pool.jsonl",
        "pool.jsonl",
    ),
    "convert to parquet": ("convert old.trec run.parquet", "run.parquet"),
    "convert to jsonl": ("convert old.trec run.jsonl", "run.jsonl"),
    "convert to csv": ("convert old.trec run.csv", "run.csv"),
}


# A real disk where one can be mounted; in full both.
USED = KINDS[:1] if can_mount() and not FULL else KINDS if can_mount() else KINDS[1:]


@pytest.fixture(params=USED)
def disk(request, tmp_path, monkeypatch) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(request.param, folder) as made:
        shutil.copytree(lay_runs(tmp_path / "files", queries=20), folder, dirs_exist_ok=True)
        monkeypatch.chdir(folder)
        yield made
        os.chdir(tmp_path)


def lefts(size: int, times: int, seed: int) -> list[int]:
    """Room for some part of so many bytes, then for nothing, and then for other parts."""
    chance = random.Random(seed)
    return [chance.randrange(size), 0, *(chance.randrange(size) for _ in range(times))][:times]


@pytest.mark.parametrize("command", WRITING)
def test_no_room_for_a_file(run, disk, times, told, command):
    words, name = WRITING[command]
    words = [*words.split(), *(["--quiet"] if "convert" not in words else [])]
    before = disk.contents()
    assert run(*words).code == 0
    whole = disk.contents()
    size = len(whole[name])
    tries = lefts(size, times(1, 40), seed=1)
    for left in tries:
        clear(disk, before)
        old = b"what was here before"
        Path(name).write_bytes(old)
        with disk.almost_full(left):
            refused = run(*words)
        assert refused.code == 2
        last = refused.err.splitlines()[-1]
        assert last == (
            f"karat: {name}: cannot be written: {disk.reason}; make room, or choose another place"
        )
        kept = {one: data for one, data in disk.contents().items() if ".karat/" not in one}
        assert kept == before | {name: old}
        assert run(*words).code == 0
        assert disk.contents() == whole
    told(f"no room: {disk.kind}", command, len(tries), "refused, old file kept, then same bytes")


def clear(disk: Disk, before: dict[str, bytes]) -> None:
    """Take away all that was not there before."""
    for name in disk.contents():
        if name not in before:
            (disk.folder / name).unlink()
    shutil.rmtree(disk.folder / ".karat", ignore_errors=True)


def test_no_room_for_a_recipe(run, disk, times, told):
    tries = lefts(100_000, times(2, 40), seed=2)
    assert run("init", "rag", "whole", "--quiet").code == 0
    whole = {path.name: path.read_bytes() for path in Path("whole").iterdir()}
    for left in tries:
        with disk.almost_full(left):
            refused = run("init", "rag", "half", "--quiet")
        assert refused.code == 2
        assert f"cannot be written: {disk.reason}; make room, or choose another place\n" in (
            refused.err
        )
        assert not list(Path("half").rglob("*")), "all files of a recipe, or none"
        assert run("init", "rag", "half", "--quiet").code == 0
        assert {path.name: path.read_bytes() for path in Path("half").iterdir()} == whole
        shutil.rmtree("half")
    told(f"no room: {disk.kind}", "init", len(tries), "nothing laid down, then all of it")


SEARCH = ("search", "--no-latency", "--quiet")


def test_no_room_for_a_log(run, disk, times, told):
    Path("karat.yaml").write_text(
        "queries: queries.jsonl\ncorpus: corpus.jsonl\nsystems:\n  words: {retriever: bow, k: 10}\n"
    )
    assert run(*SEARCH).code == 0
    log, part = Path("runs/words.jsonl"), Path("runs/words.jsonl.part")
    whole = log.read_bytes()
    calls = whole.count(b"\n")
    tries = lefts(len(whole), times(4, 60), seed=3)
    for left in tries:
        log.unlink()
        with disk.almost_full(left):
            refused = run(*SEARCH)
        assert refused.code == 2
        kept = part.read_bytes() if part.exists() else b""
        assert whole.startswith(kept)
        lines = kept.count(b"\n")
        told_of = "what was logged is kept" if lines else "nothing was logged"
        then = "resume with --resume" if lines else "run it again"
        assert refused.err == (
            f"karat: {part.absolute()}: cannot be written: {disk.reason}; {told_of}: make room, "
            f"then {then}\n"
        )
        assert part.exists() == bool(lines)
        done = run(*SEARCH, "--json", *(["--resume"] if lines else []))
        assert json.loads(done.out)[0]["asked"] == calls - lines
        assert log.read_bytes() == whole
        assert not part.exists()
    told(f"no room: {disk.kind}", "search", len(tries), "logged lines kept, resumed to same bytes")


def test_no_room_for_labels_and_their_cache(run, disk, times, told):
    pool = lay_pool(disk.folder / "pool", 40) / "pool.jsonl"
    texts = [json.loads(line)["text"] for line in pool.read_text().splitlines()]
    Path("prompt.md").write_text("{query}\n{text}\n")
    words = ("judge", str(pool), "-o", "labels.jsonl", "--model", "m", "--prompt", "prompt.md")
    labels, part, cache = map(Path, ("labels.jsonl", "labels.jsonl.part", ".karat/judgments.jsonl"))
    with Service() as service:
        words = (*words, "--url", f"{service.url}/v1", "--quiet", "--concurrency", "1")
        assert run(*words).code == 0
        whole = labels.read_bytes()
        tries = lefts(len(whole) + cache.stat().st_size, times(3, 30), seed=4)
        for left in tries:
            labels.unlink()
            cache.unlink()
            with disk.almost_full(left if disk.kind == KINDS[0] else left // 2):
                refused = run(*words)
            assert refused.code == 2
            assert f"cannot be written: {disk.reason}; " in refused.err
            assert "make room, " in refused.err
            kept = part.read_bytes() if part.exists() else b""
            assert whole.startswith(kept)
            service.asked.clear()
            assert run(*words, *(["--resume"] if kept else [])).code == 0
            assert labels.read_bytes() == whole
            done = texts[: kept.count(b"\n")]
            assert not service.asked.keys() & set(done), "what was judged is asked again"
    told(f"no room: {disk.kind}", "judge", len(tries), "labels kept, resumed to the same bytes")


def test_no_room_in_the_store(run, disk, times, told):
    saving = (*EVAL.split(), "--save", "--quiet")
    adding = ("labels", "import", "qrels.txt", "--rater", "Ana", "--name", "more")
    assert run(*saving, "--tag", "main").code == 0
    store = Path(".karat/history.db")
    size = store.stat().st_size
    kept = shutil.copytree(".karat", disk.folder.parent / "kept")
    tries = lefts(size, times(2, 30), seed=5)
    for left in tries:
        shutil.rmtree(".karat")
        shutil.copytree(kept, ".karat")
        listed = run("history", "--json").out
        for words in (saving, adding):
            with disk.almost_full(left):
                done = run(*words)
            # What fits into pages that are there already may be saved.
            if done.code == 0:
                assert left
                break
            assert done.code == 2
            last = done.err.splitlines()[-1]
            assert last.startswith("karat: .karat/history.db: cannot be ")
            assert "; make room, " in last
            assert run("history", "--json").out == listed
            with Store.open(store) as opened:
                # A set for them may be there; of its judgments there are all, or none.
                assert not any(opened.judgments(one.id) for one in opened.label_sets())
        else:
            assert run(*saving).code == 0
            assert run(*adding).code == 0
            assert len(json.loads(run("history", "--json").out)["evaluations"]) == 4
    told(
        f"no room: {disk.kind}",
        "eval --save, labels import",
        len(tries),
        "no evaluation or judgment, or all",
    )


def test_standard_output_without_room_is_told(tmp_path, told):
    if not Path("/dev/full").exists():
        pytest.skip("needs a device that is always full")
    folder = lay_runs(tmp_path / "files", queries=5)
    words = [sys.executable, "-m", "karat", "eval", "old.trec", "--gold", "qrels.txt"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words, cwd=folder, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (2, b"karat: No space left on device\n")
    told("no room: /dev/full", "eval > /dev/full", 1, "refused in one line")
