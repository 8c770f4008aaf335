"""Whatever is done to a file, reading it gives a table or one line of complaint."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.tables import Corpus, Gold, InterleavedError, Queries, Run
from karat.errors import KaratError
from karat.formats.readers import (
    read_corpus,
    read_gold,
    read_queries,
    read_run,
    scan_run,
    write_corpus,
    write_gold,
    write_queries,
    write_run,
)
from karat.formats.registry import FORMATS

TABLES = {
    "gold": Gold.from_dict({"q1": {"d1": 2, "d2": 0}, "q2": {"d#3": 1}}),
    "run": Run.from_dict({"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d#3": 1.0}}),
    "queries": Queries.from_dict({"q1": {"text": "q1", "k": 5}, "q2": {"text": "q2", "k": 3}}),
    "corpus": Corpus.from_dict({"Sc1": "a text", "Sc2": "two\nlines"}),
}
READ = {"gold": read_gold, "run": read_run, "queries": read_queries, "corpus": read_corpus}
WRITE = {"gold": write_gold, "run": write_run, "queries": write_queries, "corpus": write_corpus}
# Polars can end the whole process on damage inside a Parquet file, which nobody can catch.
APART = {"beir", "parquet"}
CASES = [(f.name, kind) for f in FORMATS.values() for kind in f.carries if f.name not in APART]
WORDS = b'\0 \n \t " { ] , nan \xff null -1 \r [] 1e999 true \\ud800 :'
JUNK = st.sampled_from([b"", b" ", *WORDS.split(b" ")])


@pytest.mark.parametrize(("name", "kind"), CASES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damage_never_surfaces_as_a_traceback(name: str, kind: str, data: st.DataObject) -> None:
    form = FORMATS[name]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"file{form.suffixes[0]}"
        WRITE[kind](TABLES[kind], path, format=name)  # type: ignore[operator]
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            start = data.draw(st.integers(0, len(content)))
            length = data.draw(st.sampled_from([0, 1, 2, 5, 40]))
            content[start : start + length] = data.draw(JUNK)
        path.write_bytes(content)
        for format in (name, None):
            assert "\n" not in complaint(path, kind, format)


@pytest.mark.parametrize("kind", list(TABLES))
@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=25, deadline=None)
def test_a_parquet_file_that_is_cut_off_is_refused(kind: str, share: float) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        WRITE[kind](TABLES[kind], path)  # type: ignore[operator]
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        said = complaint(path, kind, None)
        assert said.startswith("file.parquet")
        assert "\n" not in said


def complaint(path: Path, kind: str, format: str | None) -> str:
    try:
        READ[kind](path, format=format)  # type: ignore[operator]
        if kind == "run":
            list(scan_run(path, format=format).blocks())
    except KaratError as error:
        return str(error)
    except InterleavedError:
        return "interleaved"
    return ""
