"""Runs that are larger than the memory they may take: the same figures, by way of the disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import karat
from karat.data.columns import Source
from karat.errors import InputError, UsageError
from karat.formats import blocks
from karat.formats.blocks import StreamedRun
from karat.formats.readers import scan_run
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score
from karat.measure.scores import Scores

MEASURES = ["nDCG@5", "AP", "RR", "Bpref", "infAP", "R@3", "ERR@4", "Judged@4"]
HITS = st.tuples(
    st.integers(0, 11),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.5, 0.5000000001, 1.0, 3.25]),
    st.integers(1, 4),
)


def streamed(rows: pl.DataFrame, size: int, *, strict: bool = False) -> StreamedRun:
    """A run that comes in batches of so many rows."""

    def batches() -> Iterator[pl.DataFrame]:
        return (rows.slice(start, size) for start in range(0, rows.height, size))

    return StreamedRun("run", Source("run.trec"), batches, strict=strict)


def told(scores: Scores) -> object:
    """Every number and text that was found, to the last bit."""
    assert scores.trace is not None
    assert scores.lists is not None
    return (
        scores.table.rows(),
        scores.status.tolist(),
        scores.counts,
        scores.means(),
        {name: [side.tobytes() for side in ends] for name, ends in scores.tied.items()},
        scores.trace.facts.rows(),
        scores.trace.ranked.hits.rank.tolist(),
        scores.lists.sort("row", "rank").rows(),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(HITS, min_size=2, max_size=80),
    st.sampled_from(["id-asc", "id-desc", "given"]),
    st.sampled_from(["score", "rank"]),
    st.integers(1, 30),
    st.integers(150, 3_000),
    st.booleans(),
)
def test_parts_tell_what_the_whole_run_tells_bit_for_bit(rows, ties, order, size, most, ranked):
    rows = [*rows, (0, 1, 0.5, 2)]
    frame = pl.DataFrame(
        {
            "query_id": [f"q{query}" for query, *_ in rows],
            # Long enough that Polars keeps it apart from its place.
            "item_id": [f"a rather long item id {item}" for _, item, *_ in rows],
            "score": [score for *_, score, _ in rows],
        }
    )
    if ranked or order == "rank":
        frame = frame.with_columns(rank=pl.Series([rank for *_, rank in rows], dtype=pl.Int64))
    gold = karat.Gold.from_dict(
        {f"q{query}": {f"a rather long item id {n}": n % 3 for n in range(5)} for query in range(9)}
    )
    asked = prepare(gold, conventions_of("karat", {"ties": ties, "order": order}))
    chosen = parse_measures(MEASURES)
    whole = score(karat.Run(frame, name="run"), asked, chosen, keep=10)
    largest = max(map(blocks.size_in_memory, frame.partition_by("query_id")))
    budget = blocks.memory_budget()._replace(table=max(most, largest))
    with patch("karat.formats.blocks.memory_budget", lambda: budget):
        run = streamed(frame, size)
        run = StreamedRun(run.name, run.source, run.batches)
        parts = list(run.partitions())
        assert sum(part.hits.height for part in parts) == frame.height
        with patch.object(StreamedRun, "blocks", StreamedRun.partitions):
            assert told(score(run, asked, chosen, keep=10)) == told(whole)


def set_budget(monkeypatch: pytest.MonkeyPatch, module: str = "blocks", **sizes: int) -> None:
    """Read runs with these sizes."""
    budget = blocks.memory_budget()._replace(**sizes)
    monkeypatch.setattr(f"karat.formats.{module}.memory_budget", lambda: budget)


def shuffled(queries: int, hits: int, seed: int = 1) -> pl.DataFrame:
    chance = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "query_id": np.repeat([f"q{n}" for n in range(queries)], hits),
            "item_id": [f"item {n}" for n in chance.integers(0, 9, queries * hits)],
            "score": chance.random(queries * hits),
        }
    )
    return frame[chance.permutation(frame.height)]


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_a_part_that_is_too_large_is_parted_again(scratch, monkeypatch):
    monkeypatch.setattr(blocks, "PARTITIONS", 4)
    frame = shuffled(300, 7).with_row_index("line")
    batches = (frame.slice(start, 60) for start in range(0, frame.height, 60))
    # 2,100 rows in 4 parts make 525 in each, and in 16 still 131; 100 are the most here.
    most = blocks.size_in_memory(frame.head(100))
    parts = [pl.concat(part) for part in blocks.partition_by_query(batches, "run", most=most)]
    assert len(parts) > 16
    assert max(part.height for part in parts) <= 105
    names = [set(part["query_id"]) for part in parts]
    assert sum(map(len, names)) == len(set.union(*names)) == 300
    assert all(part["line"].is_sorted() for part in parts)
    assert pl.concat(parts).sort("line").equals(frame)
    assert left_in(scratch) == []


def test_what_fits_never_sees_the_disk(monkeypatch):
    frame = shuffled(10, 10)
    monkeypatch.setattr("tempfile.tempdir", "/there/is/no/such/folder")
    assert [part.hits.height for part in streamed(frame, 7).partitions()] == [100]


def test_ranks_count_only_if_all_hits_have_them():
    frame = shuffled(40, 5).with_columns(rank=pl.lit(1, dtype=pl.Int64))
    batches = [frame.head(150), frame.tail(50).with_columns(rank=pl.lit(None, dtype=pl.Int64))]
    run = StreamedRun("run", Source("run.trec"), lambda: iter(batches))
    assert run.read().hits.columns == ["query_id", "item_id", "score"]


def test_nothing_is_left_when_the_reader_stops(scratch, monkeypatch):
    set_budget(monkeypatch, table=10_000)
    parts = streamed(shuffled(100, 20), 100).partitions()
    next(parts)
    assert left_in(scratch)[0].startswith("karat-")
    parts.close()
    assert left_in(scratch) == []


def test_nothing_is_left_when_a_late_line_is_wrong(scratch, tmp_path, monkeypatch):
    set_budget(monkeypatch, table=10_000)
    lines = [f"q{n % 50} Q0 d{n} 1 {n} t\n" for n in range(2_000)]
    (tmp_path / "run.trec").write_text("".join([*lines, "q1 Q0 d1 1 nan t\n"]))
    set_budget(monkeypatch, "files", chunk=1_000)
    with pytest.raises(InputError, match=r"^run.trec:2001: score is 'nan'"):
        list(scan_run(tmp_path / "run.trec").partitions())
    assert left_in(scratch) == []


def test_strict_names_the_first_hit_that_came_twice(scratch, monkeypatch):
    lines = [f"q{n % 60} Q0 d{n} 1 {n} t" for n in range(600)]
    # The same pairs again, later and later in the file, in parts that are read in another order.
    lines += [lines[n] for n in (59, 3, 17, 40, 28)]
    rows = [line.split() for line in lines]
    frame = pl.DataFrame(
        {
            "query_id": [row[0] for row in rows],
            "item_id": [row[2] for row in rows],
            "score": [float(row[4]) for row in rows],
            "line": range(1, len(rows) + 1),
        }
    )
    whole = streamed(frame, 50, strict=True)
    set_budget(monkeypatch, table=2_000)
    for run in (whole.read, lambda: list(whole.partitions())):
        with pytest.raises(InputError, match=r"^run.trec:601: query 'q59' has item 'd59' twice"):
            run()


@pytest.mark.parametrize("in_order", [True, False])
def test_one_query_beyond_the_bound_is_refused_by_name(scratch, monkeypatch, in_order):
    frame = pl.concat([shuffled(1, 2_000), shuffled(30, 3)])
    frame = (
        frame.sort("query_id", maintain_order=True)
        if in_order
        else frame.sample(fraction=1, shuffle=True, seed=3)
    )
    set_budget(monkeypatch, table=20_000, block_rows=200)
    run = streamed(frame, 90)
    with pytest.raises(InputError, match=r"the hits of query 'q0' alone take more .*KARAT_MEMORY"):
        list(run.blocks() if in_order else run.partitions())
    assert left_in(scratch) == []


@pytest.mark.parametrize(
    ("given_size", "message"),
    [
        ("lots", "KARAT_MEMORY is 'lots'; a size is expected, such as 64MB or 2GB"),
        ("-1GB", "a size is expected"),
        ("20MB", "KARAT_MEMORY is '20MB'; karat needs at least 250 MB"),
    ],
)
def test_a_bound_that_is_none_is_refused(monkeypatch, given_size, message):
    monkeypatch.setenv("KARAT_MEMORY", given_size)
    with pytest.raises(UsageError, match=message):
        blocks.memory_limit()


def test_the_bound_is_what_was_asked_for_or_half_of_what_there_is(monkeypatch, tmp_path):
    monkeypatch.setenv("KARAT_MEMORY", "1.5 GB")
    assert blocks.memory_limit() == 1_500_000_000
    monkeypatch.setenv("KARAT_MEMORY", " ")
    said = Path("/proc/meminfo").read_text().split()[1]
    assert blocks.memory_limit() <= int(said) * 1_024 // 2
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1000000000\n")
    monkeypatch.setattr(blocks, "_CGROUPS", tmp_path)
    assert blocks.memory_limit() == 500_000_000


def test_blocks_shrink_with_the_bound(monkeypatch):
    sizes = []
    for bound in ("250MB", "300MB", "2GB", "200GB"):
        monkeypatch.setenv("KARAT_MEMORY", bound)
        budget = blocks.memory_budget()
        sizes.append((budget.block_rows, budget.chunk, budget.table))
    assert sizes == sorted(sizes)
    assert sizes[0][0] < sizes[1][0] < sizes[2][0] == sizes[3][0]
    assert sizes[0][1] < sizes[2][1] == sizes[3][1]


# From here on with whole processes, whose memory is measured.

QUERIES, DEPTH = 4_000, 500


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """2,000,000 rows in no order, which take 300 MB and more to rank at once."""
    folder = tmp_path_factory.mktemp("large")
    chance = np.random.default_rng(4)
    order = chance.permutation(QUERIES * DEPTH)
    pl.DataFrame(
        {
            "query_id": pl.Series([f"q{n}" for n in range(QUERIES)]).gather(order // DEPTH),
            "Q0": pl.repeat("Q0", len(order), eager=True),
            "item_id": pl.Series([f"d{n}" for n in range(DEPTH)]).gather(order % DEPTH),
            "rank": pl.repeat(1, len(order), eager=True),
            "score": chance.integers(0, 1_000, QUERIES * DEPTH) / 8,
            "tag": pl.repeat("t", len(order), eager=True),
        }
    ).write_csv(folder / "run.trec", include_header=False, separator=" ")
    gold = [f"q{n} 0 d{n % DEPTH} {1 + n % 2}\n" for n in range(QUERIES)]
    (folder / "gold.txt").write_text("".join(gold))
    return folder


# The most memory that a process took is its own affair only as long as it runs: what the
# system tells afterwards counts the process that it was made of.
PROGRAM = """
import atexit, pathlib, sys
from karat.cli.main import main
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: pathlib.Path(sys.argv.pop()).write_text(status.read_text()))
sys.exit(main(sys.argv[1:-1]))
"""
WORDS = ["eval", "run.trec", "--gold", "gold.txt", "-m", "nDCG@10,AP,RR", "--no-bounds"]
WORDS += ["--set", "interval=none"]


def start(folder: Path, scratch: Path, memory: str, **more: object) -> subprocess.Popen[bytes]:
    env = os.environ | {"KARAT_MEMORY": memory, "TMPDIR": str(scratch)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = [sys.executable, "-c", PROGRAM, *WORDS, str(folder / "status")]
    return subprocess.Popen(words, cwd=folder, env=env, **pipes, **more)


def ended(folder: Path, process: subprocess.Popen[bytes]) -> tuple[bytes, float]:
    """What it wrote, and the most megabytes that it took."""
    output, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    status = (folder / "status").read_text()
    return output, int(status.partition("VmHWM:")[2].split()[0]) / 1_000


def test_a_run_beyond_the_bound_stays_within_it_and_tells_the_same(large, tmp_path):
    output, peak = ended(large, start(large, tmp_path, "250MB"))
    free, most = ended(large, start(large, tmp_path, "8GB"))
    assert output == free
    assert b"nDCG@10" in output
    assert peak < 250 < 350 < most
    assert left_in(tmp_path) == []


def test_ctrl_c_leaves_nothing_behind(large, tmp_path):
    process = start(large, tmp_path, "250MB")
    for _ in range(600):
        if left_in(tmp_path) or process.poll() is not None:
            break
        time.sleep(0.05)
    assert left_in(tmp_path)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert left_in(tmp_path) == []


def test_a_full_disk_is_told_with_the_folder_and_what_to_do(large, tmp_path):
    def little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))

    process = start(large, tmp_path, "250MB", preexec_fn=little)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert told.decode().startswith(f"karat: {tmp_path}/karat-")
    assert "File too large; make room there, set TMPDIR to another folder" in told.decode()
    assert left_in(tmp_path) == []
