"""Vectors in files: those that users keep, and the cache that must never give a wrong one."""

from __future__ import annotations

import logging
import multiprocessing
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karat.errors import InputError
from karat.retrieve.vectors import VectorCache, read_vectors

ROWS = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", ">f4"])
def test_vectors_in_the_order_of_the_corpus(tmp_path, dtype):
    np.save(tmp_path / "v.npy", ROWS.astype(dtype))
    kept = read_vectors(tmp_path / "v.npy")
    assert kept.of_items(["a", "b", "c"]).tolist() == ROWS.tolist()
    assert kept.rows.dtype == np.float32


@pytest.mark.parametrize("ids", [["c", "a", "b"], [b"c", b"a", b"b"]])
def test_vectors_with_ids_are_put_in_order(tmp_path, ids):
    np.savez(tmp_path / "v.npz", ids=np.array(ids), vectors=ROWS)
    kept = read_vectors(tmp_path / "v.npz")
    assert kept.of_items(["a", "b", "c"]).tolist() == [[3, 4], [5, 6], [1, 2]]
    assert kept.of_items(["b"]).tolist() == [[5, 6]]


def test_whole_numbers_can_be_ids(tmp_path):
    np.savez(tmp_path / "v.npz", ids=np.array([7, 8, 9]), vectors=ROWS)
    assert read_vectors(tmp_path / "v.npz").of_items(["9"]).tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (np.zeros(3), "holds float64 in the shape 3; a table of numbers is expected"),
        (np.zeros((3, 0)), "in the shape 3 × 0"),
        (np.zeros((3, 2, 2)), "in the shape 3 × 2 × 2"),
        (np.array([["a", "b"]]), "holds <U1"),
        (np.array([[1, 2], [np.nan, 4]]), "row 1 (counted from 0) holds nan, inf"),
        (np.array([[1, 2], [3, 4], [5, np.inf]]), "row 2 (counted from 0) holds nan, inf"),
        (np.array([[1e300, 2]]), "row 0 (counted from 0)"),
    ],
)
def test_what_is_no_table_of_vectors_is_refused_with_its_file(tmp_path, wrong, told):
    np.save(tmp_path / "v.npy", wrong)
    with pytest.raises(InputError) as caught:
        read_vectors(tmp_path / "v.npy")
    assert str(caught.value).startswith(f"{tmp_path / 'v.npy'}: ")
    assert told in str(caught.value)


def test_a_row_far_down_is_found(tmp_path):
    rows = np.zeros((9000, 2))
    rows[8765, 1] = np.nan
    np.save(tmp_path / "v.npy", rows)
    with pytest.raises(InputError, match="row 8,765"):
        read_vectors(tmp_path / "v.npy")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"vectors": ROWS}, "holds no ids; a .npz needs ids and vectors"),
        ({"ids": np.array(["a"])}, "holds no vectors"),
        ({"x": ROWS}, "holds no ids and no vectors"),
        ({"ids": np.array(["a", "b"]), "vectors": ROWS}, "holds 2 ids for 3 vectors"),
        ({"ids": np.array(["a", "b", "a"]), "vectors": ROWS}, "id 'a' occurs twice"),
        ({"ids": np.array([0.5, 1.5, 2.5]), "vectors": ROWS}, "ids are float64"),
        (
            {"ids": np.array(["a", None, 3], dtype=object), "vectors": ROWS},
            "ids as text",
        ),
    ],
)
def test_what_is_no_table_of_ids_and_vectors_is_refused(tmp_path, arrays, told):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(InputError) as caught:
        read_vectors(tmp_path / "v.npz")
    assert told in str(caught.value)


def test_a_wrong_number_of_vectors_is_refused(tmp_path):
    np.save(tmp_path / "v.npy", ROWS)
    with pytest.raises(InputError, match="holds 3 vectors for 2 items; one per item is expected"):
        read_vectors(tmp_path / "v.npy").of_items(["a", "b"])


def test_items_without_a_vector_are_named(tmp_path):
    np.savez(tmp_path / "v.npz", ids=np.array(["a", "b", "c"]), vectors=ROWS)
    with pytest.raises(InputError, match=r"no vector for item 'x' \(2 are missing\)"):
        read_vectors(tmp_path / "v.npz").of_items(["a", "x", "y"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot be read"),
        (b"id,vector\n", "cannot be read"),
        (b"\x93NUMPY\x01\x00", "cannot be read"),
        (b"PK\x03\x04broken", "cannot be read"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, told):
    (tmp_path / "v.npy").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_vectors(tmp_path / "v.npy")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_vectors(tmp_path / "none.npy")
    with pytest.raises(InputError, match="directory"):
        read_vectors(tmp_path)


class Model:
    """Makes vectors of a text's length and first letter, and counts what it is asked."""

    def __init__(self):
        self.asked: list[str] = []

    def __call__(self, texts):
        self.asked += texts
        return [vector(text) for text in texts]


def vector(text: str) -> np.ndarray:
    return np.array([len(text), ord(text[:1] or " "), 0.5], dtype=np.float32)


def filled(folder, texts, model, *, digest="m", step=2, interval=20.0, progress=None):
    rows = np.full((len(texts), 3), np.nan, dtype=np.float32)

    def put(where, made):
        rows[where] = made

    cache = VectorCache(folder, digest, interval=interval)
    new = cache.fill(texts, model, put, step=step, progress=progress or (lambda *told: None))
    assert rows.tolist() == [vector(text).tolist() for text in texts]
    return new


def test_a_second_run_embeds_only_what_is_new(tmp_path):
    model = Model()
    assert filled(tmp_path, ["one", "two", "three"], model) == 3
    assert filled(tmp_path, ["two", "four", "one", "three"], model) == 1
    assert filled(tmp_path, ["four", "two"], model) == 0
    assert model.asked == ["one", "two", "three", "four"]


def test_equal_texts_are_embedded_once(tmp_path):
    model = Model()
    assert filled(tmp_path, ["a", "b", "a", "", "", "a"], model) == 3
    assert model.asked == ["a", "b", ""]


def test_another_model_has_vectors_of_its_own(tmp_path):
    model = Model()
    filled(tmp_path, ["one"], model, digest="m" * 64)
    filled(tmp_path, ["one"], model, digest="n" * 64)
    assert model.asked == ["one", "one"]


def test_odd_texts_have_places_too(tmp_path):
    texts = ["", " ", "x" * 1_000_000, "x" * 1_000_001, "é", "e\u0301"]
    assert filled(tmp_path, texts, Model()) == 6
    assert filled(tmp_path, texts, Model()) == 0


def test_progress_counts_what_is_embedded(tmp_path):
    heard = []
    filled(tmp_path, ["a"], Model())
    filled(tmp_path, ["a", "b", "c", "d"], Model(), progress=lambda *told: heard.append(told))
    assert heard == [("embedding", 2, 3), ("embedding", 3, 3)]


def test_what_is_embedded_before_a_stop_is_kept(tmp_path):
    def stopping(texts):
        if "seven" in texts:
            raise KeyboardInterrupt
        return [vector(text) for text in texts]

    texts = ["one", "two", "three", "four", "five", "six", "seven"]
    with pytest.raises(KeyboardInterrupt):
        filled(tmp_path, texts, stopping)
    model = Model()
    assert filled(tmp_path, texts, model) == 1
    assert model.asked == ["seven"]


_KILLED = """
import os, sys, numpy as np
from pathlib import Path
from karat.retrieve.vectors import VectorCache
def embed(texts):
    if "six" in texts:
        os._exit(9)
    return [np.array([len(t), ord(t[0]), 0.5], dtype=np.float32) for t in texts]
cache = VectorCache(Path(sys.argv[1]), "m", interval=0.0)
cache.fill(["one", "two", "three", "four", "five", "six"], embed, lambda *a: None, step=1,
           progress=lambda *a: None)
"""


def test_a_process_that_is_killed_loses_little(tmp_path):
    import sys

    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    assert killed.returncode == 9
    model = Model()
    filled(tmp_path, ["one", "two", "three", "four", "five", "six"], model)
    assert model.asked == ["six"]


def test_the_cache_is_kept_out_of_git(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    filled(tmp_path / ".karat", ["one"], Model())
    status = subprocess.run(
        ["git", "-C", tmp_path, "status", "--porcelain"], capture_output=True, check=True
    )
    assert status.stdout == b""


def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    model = Model()
    with pytest.raises(InputError, match="vectors cannot be kept there"):
        filled(tmp_path / "file", ["one"], model)
    assert model.asked == []


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("vectors/*/*.npz"))


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "flip", "other shape"])
def test_a_damaged_file_is_told_of_and_made_again(tmp_path, caplog, damage):
    texts = ["one", "two", "three"]
    filled(tmp_path, texts, Model())
    (part,) = _parts(tmp_path)
    whole = part.read_bytes()
    if damage == "other shape":
        np.savez(part, keys=np.zeros((3, 32), dtype=np.uint8), vectors=np.zeros((3, 2)))
    else:
        place = whole.index(vector("two").tobytes())
        flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        part.write_bytes(
            {"cut": whole[:-40], "empty": b"", "text": b"no archive", "flip": flipped}[damage]
        )
    model = Model()
    with caplog.at_level(logging.WARNING, logger="karat"):
        assert filled(tmp_path, texts, model) == 3
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        f"{part} is damaged"
    ]
    assert caplog.records[0].getMessage().endswith("its texts are embedded again")
    assert filled(tmp_path, texts, Model()) == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_ever_gives_a_wrong_vector(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cache")
    texts = ["one", "two", "three"]
    filled(folder, texts, Model())
    (part,) = _parts(folder)
    whole = bytearray(part.read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=3)):
        whole[place] ^= data.draw(st.integers(1, 255))
    part.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    filled(folder, texts, Model())


def _fill_in_a_process(folder: Path, texts: list[str]) -> int:
    return filled(folder, texts, Model(), step=1, interval=0.0)


def test_two_processes_can_share_a_cache(tmp_path):
    texts = [f"text {number}" for number in range(40)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        made = pool.starmap(_fill_in_a_process, [(tmp_path, texts), (tmp_path, texts[::-1])])
    assert all(0 <= new <= 40 for new in made)
    assert sum(made) >= 40
    assert filled(tmp_path, texts, Model()) == 0
    assert not list(tmp_path.rglob("*.part"))
