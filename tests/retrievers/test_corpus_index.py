"""The index kept on disk: what bm25 finds, whatever happens to the files."""

from __future__ import annotations

import gzip
import io
import json
import logging
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_corpus import BEST, NOTHING, TEXTS

from karat.data.tables import Corpus
from karat.errors import InputError
from karat.jobs.cache import CACHE_FOLDER
from karat.retrieve import index_cache
from karat.retrieve.bm25 import Options, make
from karat.retrieve.build_context import BuildContext
from karat.retrieve.corpus_index import open_index
from karat.retrieve.protocol import Query

WORDS = ["cat", "Dog", "été", "naïve", "東京", "42", "a", "x-y", "the", "THE", "ride", "back"]


def written(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Random texts of few words, so that many scores are equal, some with titles."""
    draw = random.Random(7)
    rows = [
        {
            "item_id": f"d{at // 3}#{at % 3}",
            "text": " ".join(draw.choices(WORDS, k=draw.randrange(9))),
            "version": f"2025-01-{at % 28 + 1:02d}",
            **({"title": draw.choice(WORDS)} if at % 4 == 0 else {}),
        }
        for at in range(90)
    ]
    return written(tmp_path / "corpus.jsonl", rows)


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def asked() -> list[str]:
    draw = random.Random(11)
    texts = [" ".join(draw.choices([*WORDS, "zebra"], k=n)) for n in (1, 1, 2, 3, 5, 8, 13)]
    return [*texts, "", "cat cat cat dog", "zebra"]


def as_found_by_bm25(path, texts, k):
    from karat.formats.readers import read_corpus

    finder = make(Options(), BuildContext(corpus=lambda: read_corpus(path)), {})
    answers = finder.find([Query("q", text) for text in texts], k)
    return [[(hit.item_id, hit.score) for hit in answer.hits] for answer in answers]


def found(index, texts, k):
    hits = index.bm25(texts, k)
    lists = [hits.filter(query=at) for at in range(len(texts))]
    assert all(own["rank"].to_list() == list(range(1, own.height + 1)) for own in lists)
    return [list(zip(own["item_id"], own["score"], strict=True)) for own in lists]


def parts_of(cache) -> list[str]:
    """Return the names of the corpora, each of which is two files with one index."""
    names = {path.name for path in (cache / "index").iterdir()} - {".gitignore"}
    keys = sorted({name.partition(".")[0].partition("-")[0] for name in names})
    of_items = {f"{key}{suffix}" for key in keys for suffix in (".npz", ".arrow")}
    assert of_items <= names
    assert sorted(name.partition("-")[0] for name in names - of_items) == keys
    return keys


def index_of(cache) -> str:
    """Return the name of the only index, without its suffix."""
    [path] = (cache / "index").glob("*-*.npz")
    return path.stem


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_bm25_finds_what_the_retriever_finds_to_the_last_bit(corpus, cache, k):
    expected = as_found_by_bm25(corpus, asked(), k)
    assert sum(map(len, expected)) > 5
    made, kept = open_index(corpus, cache), open_index(corpus, cache)
    assert found(made, asked(), k) == expected
    assert found(kept, asked(), k) == expected


def test_any_script_is_found(tmp_path, cache):
    path = written(tmp_path / "c.jsonl", [{"item_id": i, "text": t} for i, t in TEXTS.items()])
    for _ in range(2):
        index = open_index(path, cache)
        best = [own[0][0] for own in found(index, list(BEST), 3)]
        assert best == list(BEST.values())
        assert found(index, [NOTHING], 3) == [[]]


def test_the_second_opening_reads_no_corpus_and_loads_no_library(corpus, cache):
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from karat.retrieve.corpus_index import open_index\n"
        f"index = open_index({str(corpus)!r}, Path({str(cache)!r}))\n"
        "print(len(index), index.bm25(['cat'], 3)['item_id'].to_list())\n"
        "print(sorted({'bm25s', 'numba', 'scipy', 'pydantic'} & set(sys.modules)))"
    )

    def told() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    first, second = told(), told()
    assert first[0] == second[0]
    assert first[0].startswith("90 ['d")
    assert "bm25s" in first[1]
    assert second[1] == "[]"


def test_items_are_those_of_the_corpus(corpus, cache):
    from karat.formats.readers import read_corpus

    whole = read_corpus(corpus)
    open_index(corpus, cache)
    index = open_index(corpus, cache)
    assert index.corpus().frame.equals(whole.frame)
    assert index.source.name == "corpus.jsonl"
    assert index.source.digest() == whole.source.digest()
    assert index.rows(index.ids.to_list()).drop("tokens").equals(whole.frame)
    assert index.ids.to_list() == whole.frame["item_id"].to_list()
    assert index.rows(["nobody"]).height == 0
    assert index.rows(["d2#1", "d0#2", "nobody"])["item_id"].to_list() == ["d0#2", "d2#1"]
    assert index.rows(["d2"], by="doc_id")["item_id"].to_list() == ["d2#0", "d2#1", "d2#2"]


def test_places_in_documents_go_with_the_hits(tmp_path, cache):
    rows = [
        {"item_id": "a#0", "text": "cats here", "start": 0, "end": 9},
        {"item_id": "a#1", "text": "cats there", "start": 10, "end": 20},
    ]
    index = open_index(written(tmp_path / "c.jsonl", rows), cache)
    hits = index.bm25(["there"], 5)
    assert hits.select("item_id", "doc_id", "start", "end").rows() == [("a#1", "a", 10, 20)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [([None, None], [3, 1]), ([7, None], [7, 1]), ([["a"], ["b"]], [3, 1]), (["x", "9"], [3, 1])],
)
def test_lengths_are_the_corpus_s_own_or_words(tmp_path, cache, given, expected):
    rows = [{"item_id": "a", "text": "one two three"}, {"item_id": "b", "text": "four"}]
    rows = [
        row if own is None else row | {"tokens": own} for row, own in zip(rows, given, strict=True)
    ]
    path = written(tmp_path / "c.jsonl", rows)
    for _ in range(2):
        index = open_index(path, cache)
        assert index.rows(["a", "b"])["tokens"].to_list() == expected
        assert index.without_texts().frame["tokens"].to_list() == expected


def test_another_corpus_has_another_index(corpus, cache):
    open_index(corpus, cache)
    with corpus.open("a") as file:
        file.write('{"item_id": "new", "text": "quagga"}\n')
    assert found(open_index(corpus, cache), ["quagga"], 5)[0][0][0] == "new"
    assert len(parts_of(cache)) == 2


def test_the_same_bytes_under_another_name_share_one_index(corpus, cache):
    open_index(corpus, cache)
    open_index(corpus.rename(corpus.with_name("other.jsonl")), cache)
    assert len(parts_of(cache)) == 1


def test_what_a_name_says_of_the_layout_counts(tmp_path, cache):
    for name in ("c.tsv", "c.csv", "C.CSV"):
        (tmp_path / name).write_text("item_id\ttext\na\tone\n")
        open_index(tmp_path / name, cache)
    assert len(parts_of(cache)) == 2


def test_another_version_of_the_library_has_another_index(corpus, cache, monkeypatch):
    open_index(corpus, cache)
    first = index_of(cache)
    monkeypatch.setattr(index_cache, "library_versions", lambda name: {name: "9.9"})
    open_index(corpus, cache)
    indexes = {path.stem for path in (cache / "index").glob("*-*.npz")}
    assert first in indexes
    assert len(indexes) == 2


@pytest.mark.parametrize("part", ["corpus.npz", "corpus.arrow", "index.npz"])
@pytest.mark.parametrize("harm", ["cut", "flipped", "zeroed", "emptied", "gone", "garbage"])
def test_a_damaged_index_is_told_of_and_made_again(corpus, cache, caplog, part, harm):
    expected = found(open_index(corpus, cache), asked(), 10)
    [name] = parts_of(cache)
    stem, dot, suffix = part.partition(".")
    file = cache / "index" / f"{name if stem == 'corpus' else index_of(cache)}{dot}{suffix}"
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    if harm == "flipped":
        data[middle] ^= 1
    elif harm == "zeroed":
        data[middle:] = bytes(len(data) - middle)
    elif harm == "garbage":
        data = bytearray(b"\x93garbage" * 7)
    file.write_bytes({"cut": data[:middle], "emptied": b""}.get(harm, data))
    if harm == "gone":
        file.unlink()
    with caplog.at_level(logging.WARNING, logger="karat"):
        assert found(open_index(corpus, cache), asked(), 10) == expected
    assert ("damaged" in caplog.text) == (harm != "gone")
    caplog.clear()
    assert found(open_index(corpus, cache), asked(), 10) == expected
    assert caplog.text == ""
    assert parts_of(cache) == [name]


@pytest.mark.parametrize("suffix", [".npz", ".arrow", "-"])
def test_a_part_of_an_index_that_cannot_be_read_is_named(corpus, cache, suffix):
    open_index(corpus, cache)
    [name] = parts_of(cache)
    part = cache / "index" / f"{name}{suffix}"
    if suffix == "-":
        part = cache / "index" / f"{index_of(cache)}.npz"
    part.unlink()
    part.mkdir()
    with pytest.raises(InputError, match="cannot be read") as refused:
        open_index(corpus, cache)
    assert refused.value.where == str(part)


def test_processes_at_once_share_one_whole_index(corpus, cache):
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from karat.retrieve.corpus_index import open_index\n"
        f"index = open_index({str(corpus)!r}, Path({str(cache)!r}))\n"
        "print(index.bm25(['cat ride', 'été'], 5).rows())"
    )

    def told(_: int) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return done.stdout

    with ThreadPoolExecutor(4) as pool:
        said = set(pool.map(told, range(4)))
    assert len(said) == 1
    assert len(parts_of(cache)) == 1


def test_a_folder_that_cannot_be_written_to_means_no_cache(corpus, tmp_path, caplog):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    expected = as_found_by_bm25(corpus, asked(), 10)
    for _ in range(2):
        assert found(open_index(corpus, taken), asked(), 10) == expected
    assert caplog.text.count("cannot be kept in") == 2
    assert taken.read_text() == "a file"


def test_a_disk_that_fills_up_leaves_nothing_behind(corpus, cache, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index_cache.np, "savez", full)
    assert found(open_index(corpus, cache), ["cat"], 3) == as_found_by_bm25(corpus, ["cat"], 3)
    assert "No space left on device" in caplog.text
    assert not list((cache / "index").glob("*.npz"))


def test_git_leaves_the_index_alone(corpus, cache):
    open_index(corpus, cache)
    assert (cache / "index" / ".gitignore").read_text() == "*\n"


def test_texts_without_a_word_can_be_opened_again(tmp_path, cache):
    path = written(
        tmp_path / "c.jsonl", [{"item_id": "a", "text": ""}, {"item_id": "b", "text": "!"}]
    )
    for _ in range(2):
        index = open_index(path, cache)
        assert index.ids.to_list() == ["a", "b"]
        assert found(index, ["cat", ""], 5) == [[], []]


def test_nothing_asked_finds_nothing(corpus, cache):
    assert open_index(corpus, cache).bm25([], 5).height == 0


def test_packed_files_folders_and_standard_input_are_read(corpus, cache, tmp_path, monkeypatch):
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    expected = as_found_by_bm25(corpus, asked(), 5)
    assert found(open_index(packed, cache), asked(), 5) == expected
    assert found(open_index(packed, cache), asked(), 5) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    assert found(open_index("-", cache), asked(), 5) == expected
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "one.md").write_text("quagga")
    assert found(open_index(docs, cache), ["quagga"], 5)[0][0][0] == "one.md"


def test_the_corpus_of_a_beir_folder_is_kept(corpus, cache, tmp_path, monkeypatch):
    folder = tmp_path / "beir"
    folder.mkdir()
    shutil.copy(corpus, folder / "corpus.jsonl")
    expected = as_found_by_bm25(corpus, asked(), 5)
    assert found(open_index(folder, cache), asked(), 5) == expected
    monkeypatch.setattr(index_cache, "read_corpus", None)
    assert found(open_index(folder, cache), asked(), 5) == expected


def test_places_that_are_not_all_known_are_left_out(tmp_path, cache):
    rows = [
        {"item_id": "a", "text": "cats", "start": 0, "end": 4},
        {"item_id": "b", "text": "cats"},
    ]
    hits = open_index(written(tmp_path / "c.jsonl", rows), cache).bm25(["cats"], 5)
    assert hits.columns == ["query", "rank", "score", "item_id", "doc_id"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ('{"item_id": "a", "text": "x"}\n' * 2, "2: item id 'a' occurs twice; ids must differ"),
        ('{"item_id": "a", "text": "x"}\n{"item_id": "b"}\n', "c.jsonl:2: no text"),
        ("\0\1\2", "binary"),
    ],
)
def test_a_bad_corpus_is_refused_as_anywhere(tmp_path, cache, text, told):
    path = tmp_path / "c.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        open_index(path, cache)
    assert not (cache / "index").exists()


def test_no_such_file_is_told(tmp_path, cache):
    with pytest.raises(InputError, match="no such file"):
        open_index(tmp_path / "nowhere.jsonl", cache)


def test_a_file_that_changes_while_it_is_read_is_refused(corpus, cache, monkeypatch):
    read = index_cache.read_corpus

    def meanwhile(path, **fields) -> Corpus:
        whole = read(path, **fields)
        with corpus.open("a") as file:
            file.write('{"item_id": "late", "text": "x"}\n')
        return whole

    monkeypatch.setattr(index_cache, "read_corpus", meanwhile)
    with pytest.raises(InputError, match="changed while it was being read"):
        open_index(corpus, cache)


def test_triage_keeps_its_index_beside_the_vectors():
    from karat.jobs.cache import CACHE_FOLDER as CACHE

    assert CACHE == CACHE_FOLDER
