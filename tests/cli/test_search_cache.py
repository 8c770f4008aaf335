"""``karat search`` reuses the corpus and the BM25 index that an earlier one kept."""

from __future__ import annotations

import gzip
import json
import logging
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bm25s
import numpy as np
import pytest

import karat
from karat.retrieve import index_cache
from karat.retrieve.bm25 import Bm25Options

BM25 = "a: {retriever: bm25, k: 5}"
WORDS = ["apple", "bread", "cider", "dates", "endive", "figs", "the", "Naïve", "東京", "RUNS"]
SETTINGS = [
    "retriever: bm25, method: robertson",
    "retriever: bm25, method: bm25l",
    "retriever: bm25, method: bm25+, k1: 0.9",
    "retriever: bm25, b: 0.3",
    "retriever: bm25, title: false",
    "retriever: bm25, stopwords: english, stemmer: english",
    "retriever: bm25, stopwords: [apple]",
    "retriever: bm25, normalise: {unicode: NFKC, case: fold}, aliases: {figs: honey}",
    "retriever: bm25, filter: {language: pt}",
    "retriever: bm25, as_of: strict",
    "retriever: bm25, mmr: {lambda: 0.5}",
    "retriever: bm25, chunker: {algo: fixed, size: 30, overlap: 5}",
    "retriever: fuse, of: [bm25, {retriever: bm25, b: 0.1}, {retriever: bow}]",
]


class Builds:
    """Counts the indexes that the library builds, and the corpora that are read."""

    def __init__(self, monkeypatch) -> None:
        self.indexes = self.corpora = 0
        index, read = bm25s.BM25.index, index_cache.read_corpus

        def counted_index(*arguments, **options):
            self.indexes += 1
            return index(*arguments, **options)

        def counted_read(*arguments, **options):
            self.corpora += 1
            return read(*arguments, **options)

        monkeypatch.setattr(bm25s.BM25, "index", counted_index)
        monkeypatch.setattr(index_cache, "read_corpus", counted_read)

    def since(self) -> tuple[int, int]:
        """Return the indexes built and the corpora read since the last call."""
        counts = self.indexes, self.corpora
        self.indexes = self.corpora = 0
        return counts


@pytest.fixture
def builds(monkeypatch) -> Builds:
    return Builds(monkeypatch)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A corpus with titles, languages, versions and places, and queries with times."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(5)
    items = [
        {
            "item_id": f"d{at // 2}#{at % 2}",
            "text": " ".join(draw.choices(WORDS, k=draw.randrange(1, 30))),
            "title": draw.choice(["", *WORDS]),
            "language": draw.choice(["en", "pt"]),
            "version": f"2025-01-{at % 28 + 1:02d}",
            "source": draw.choice(["web", "wiki"]),
        }
        for at in range(80)
    ]
    queries = [
        {"query_id": f"q{at}", "text": " ".join(draw.choices(WORDS, k=3)), "as_of": "2025-01-15"}
        for at in range(12)
    ]
    lines(tmp_path / "corpus.jsonl", items)
    lines(tmp_path / "queries.jsonl", queries)
    write(BM25)
    return tmp_path


def lines(path: Path, rows) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write(systems: str, corpus: str = "corpus.jsonl", more: str = "") -> None:
    text = f"queries: queries.jsonl\ncorpus: {corpus}\n{more}systems:\n  {systems}\n"
    Path("karat.yaml").write_text(text)


def searched(run, *options: str, code: int = 0) -> dict[str, bytes]:
    """Search, and return the logs without times."""
    for log in Path("runs").glob("*"):
        log.unlink()
    done = run("search", "--no-latency", *options)
    assert done.code == code, done.err
    return {path.name: path.read_bytes() for path in sorted(Path("runs").iterdir())}


def kept(folder: str = ".karat") -> list[Path]:
    return sorted(path for path in Path(folder, "index").glob("*") if path.name[0] != ".")


def test_the_second_search_neither_reads_the_corpus_nor_builds(place, run, builds):
    first = searched(run)
    assert builds.since() == (1, 1)
    assert searched(run) == first
    assert builds.since() == (0, 0)
    assert searched(run, "--no-cache") == first
    assert builds.since() == (1, 1)


def test_the_second_search_does_not_load_the_library(place, spawn):
    assert spawn("search").code == 0
    program = (
        "import sys\nfrom karat.cli.main import main\n"
        "assert main(['search']) == 0\n"
        "assert not {'bm25s', 'scipy', 'numba'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("system", SETTINGS)
def test_every_setting_finds_the_same_with_its_index_kept(place, run, builds, system):
    write(f"a: {{{system}}}")
    without = searched(run, "--no-cache")
    needed, _ = builds.since()
    first = searched(run)
    assert builds.since()[0] == needed
    second = searched(run)
    # Chunks are cut anew, and their index goes by their texts.
    assert builds.since() == (0, int("chunker" in system))
    assert first == second == without
    assert b'"error"' not in first["a.jsonl"]


def test_systems_share_the_corpus_and_equal_settings_share_an_index(place, run, builds):
    more = "c: {retriever: bm25, k1: 1.5, filter: {language: pt}}"
    write(f"{BM25}\n  b: {{retriever: bm25, b: 0.1}}\n  {more}")
    first = searched(run)
    assert builds.since() == (2, 1)
    assert [path.suffix for path in kept()].count(".arrow") == 1
    assert len(list(Path(".karat/index").glob("*-*.npz"))) == 2
    assert searched(run) == first
    assert builds.since() == (0, 0)


def test_triage_and_search_share_one_index(place, run, builds):
    searched(run)
    builds.since()
    Path("qrels.txt").write_text("q0 0 d1#0 1\n")
    done = run(
        *("triage", "runs/a.jsonl", "--gold", "qrels.txt", "--queries", "queries.jsonl"),
        *("--corpus", "corpus.jsonl"),
    )
    assert done.code == 0, done.err
    assert builds.since() == (0, 0)


def test_triage_s_index_is_that_of_these_settings():
    # Other defaults would change kept indexes: LAYOUT must then count up.
    assert Bm25Options().model_dump() == {
        "method": "lucene",
        "k1": 1.5,
        "b": 0.75,
        "stopwords": "none",
        "stemmer": "none",
        "title": True,
    }


def test_another_corpus_is_indexed_anew(place, run, builds):
    first = searched(run)
    text = json.loads(Path("queries.jsonl").read_text().splitlines()[0])["text"]
    with Path("corpus.jsonl").open("a") as file:
        file.write(json.dumps({"item_id": "new", "text": f"{text} {text}"}) + "\n")
    builds.since()
    second = searched(run)
    assert builds.since() == (1, 1)
    assert second != first
    assert b'"new"' in second["a.jsonl"]
    assert searched(run) == second


def test_a_corpus_that_changes_while_it_is_read_is_refused(place, run, monkeypatch):
    read = index_cache.read_corpus

    def meanwhile(*arguments, **options):
        corpus = read(*arguments, **options)
        with Path("corpus.jsonl").open("a") as file:
            file.write('{"item_id": "late", "text": "x"}\n')
        return corpus

    monkeypatch.setattr(index_cache, "read_corpus", meanwhile)
    done = run("search")
    assert done.code == 2
    assert "changed while it was being read" in done.err
    assert kept() == []


@pytest.mark.parametrize("part", [".arrow", ".npz", "index"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "emptied", "old", "gone"])
def test_a_damaged_file_is_told_of_and_made_again(place, run, builds, caplog, part, harm):
    first = searched(run)
    files = {path.suffix: path for path in kept() if "-" not in path.name}
    [files["index"]] = Path(".karat/index").glob("*-*.npz")
    file = files[part]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1 if harm == "flipped" else 0
    # An archive of an earlier layout lacks arrays; of items it is no archive at all.
    old = b"ARROW1\0\0"
    if harm == "old" and part != ".arrow":
        np.savez(file, tokens=np.arange(3))
        old = file.read_bytes()
    changed = {"cut": data[: len(data) // 2], "emptied": b"", "old": old}
    file.write_bytes(changed.get(harm, data))
    if harm == "gone":
        file.unlink()
    builds.since()
    with caplog.at_level(logging.WARNING, logger="karat"):
        assert searched(run) == first
    assert builds.since() == ((1, 0) if part == "index" else (0, 1))
    assert caplog.text.count("is damaged") == (harm != "gone")
    caplog.clear()
    assert searched(run) == first
    assert builds.since() == (0, 0)
    assert caplog.text == ""


def test_a_folder_that_cannot_be_written_to_is_told_once(place, run, caplog):
    expected = searched(run, "--no-cache")
    write(f"{BM25}\n  b: {{retriever: bm25, k: 5, b: 0.1}}")
    Path("taken").write_text("a file")
    with caplog.at_level(logging.WARNING, logger="karat"):
        logs = searched(run, "--cache", "taken")
    assert logs["a.jsonl"] == expected["a.jsonl"]
    assert caplog.text.count("cannot be kept in") == 1
    assert Path("taken").read_text() == "a file"


def test_the_folder_is_beside_the_karat_yaml_or_the_one_that_is_named(place, run, builds):
    Path("elsewhere").mkdir()
    done = run("search", str(place / "karat.yaml"), "--cache", "elsewhere")
    assert done.code == 0
    assert kept("elsewhere")
    assert not Path(".karat").exists()
    assert searched(run)
    assert len(kept()) == 3
    searched(run, "--cache", "elsewhere")
    assert builds.since() == (2, 2)


def test_no_cache_keeps_nothing(place, run):
    searched(run, "--no-cache")
    assert not Path(".karat").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cache", ""], "--cache is empty"),
        (["--cache", "x", "--no-cache"], "give one of them"),
    ],
)
def test_contradictions_are_refused(place, run, options, message):
    done = run("search", *options)
    assert done.code == 2
    assert message in done.err


def test_a_search_is_resumed_from_the_kept_index(place, run, builds):
    whole = searched(run)["a.jsonl"]
    log = Path("runs/a.jsonl")
    log.unlink()
    Path("runs/a.jsonl.part").write_bytes(b"".join(whole.splitlines(True)[:5]))
    builds.since()
    assert run("search", "--no-latency", "--resume").code == 0
    assert log.read_bytes() == whole
    assert builds.since() == (0, 0)


def test_columns_with_other_names_are_read_each_time_and_indexed_once(place, run, builds):
    rows = [json.loads(line) for line in Path("corpus.jsonl").read_text().splitlines()]
    lines(Path("mine.jsonl"), [{"uid": row.pop("item_id"), **row} for row in rows])
    write(BM25, "mine.jsonl", "fields: {corpus.item_id: uid}\n")
    first = searched(run)
    assert builds.since() == (1, 1)
    assert searched(run) == first
    assert builds.since() == (0, 1)
    assert searched(run, "--no-cache") == first


def test_a_packed_corpus_and_a_folder_are_kept(place, run, builds):
    data = Path("corpus.jsonl").read_bytes()
    Path("corpus.jsonl.gz").write_bytes(gzip.compress(data))
    Path("beir").mkdir()
    Path("beir/corpus.jsonl").write_bytes(data)
    for corpus in ("corpus.jsonl.gz", "beir"):
        write(BM25, corpus)
        without = searched(run, "--no-cache")
        assert searched(run) == without
        builds.since()
        assert searched(run) == without
        assert builds.since() == (0, 0)


def test_a_corpus_larger_than_any_buffer_is_kept_whole(place, run, builds):
    draw = random.Random(9)
    items = [
        {"item_id": f"d{at}", "text": " ".join(f"w{draw.randrange(3000)}" for _ in range(120))}
        for at in range(12_000)
    ]
    lines(Path("corpus.jsonl"), items)
    rows = [{"query_id": f"q{at}", "text": f"w{at} w{at + 7}"} for at in range(9)]
    lines(Path("queries.jsonl"), rows)
    assert Path("corpus.jsonl").stat().st_size > 2**23
    first = searched(run)
    builds.since()
    assert searched(run) == first
    assert builds.since() == (0, 0)
    assert searched(run, "--no-cache") == first


def test_processes_at_once_write_the_same_logs(place, spawn):
    def log(at: int) -> bytes:
        done = spawn("search", "--no-latency", "-o", f"runs/{at}.jsonl")
        assert (done.code, "damaged" in done.err) == (0, False)
        return Path(f"runs/{at}.jsonl").read_bytes()

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(log, range(3)))) == 1
    assert len(kept()) == 3


def test_python_keeps_an_index_of_a_file_but_not_of_what_is_in_memory(place, builds):
    systems = {"a": {"retriever": "bm25"}}
    options = karat.SearchOptions(latency=False)
    karat.search(systems, "queries.jsonl", karat.read_corpus("corpus.jsonl"), options=options)
    assert not Path(".karat").exists()
    builds.since()
    for expected in ((1, 1), (0, 0)):
        karat.search(systems, "queries.jsonl", "corpus.jsonl", options=options)
        assert builds.since() == expected
