"""Text files larger than any buffer: every line is read whole, as the local engine reads it."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from karat.formats.files import HEAD_BYTES as BLOCK
from karat.spark import inputs

RUNS = ("trec", "csv", "tsv-with-header", "runlog", "trec")
GOLDS = ("trec", "tsv", "csv", "tsv-with-header", "labels")
ENDINGS = {
    "trec": "trec",
    "csv": "csv",
    "tsv": "tsv",
    "tsv-with-header": "tsv",
    "runlog": "jsonl",
    "labels": "jsonl",
}
MEASURES = "nDCG@10,R@5,AP,Coverage@10"

Hit = tuple[str, str, float]


def hits_of(least: int) -> list[Hit]:
    """Hits in the order of their scores, with ties, and ids of several lengths and scripts."""
    chance = random.Random(19)
    hits: list[Hit] = []
    length = query = 0
    while length < least:
        # One query of many hits makes a line of a log longer than a block.
        many = 700 if query == 3 else chance.randint(1, 60)
        items = {f"{'é' * chance.randint(1, 80)}{chance.randint(1, 10**9)}" for _ in range(many)}
        scores = sorted((chance.randint(0, 40) / 8 for _ in items), reverse=True)
        hits += [(f"q{query}", *one) for one in zip(sorted(items), scores, strict=True)]
        length += sum(len(item.encode()) for item in items)
        query += 1
    return hits


def run_lines(form: str, hits: list[Hit], decimals: int) -> list[str]:
    spelled = [(query, item, f"{score:.{3 + decimals}f}") for query, item, score in hits]
    if form == "trec":
        return [f"{query} Q0 {item} 0 {score} a-tag" for query, item, score in spelled]
    if form == "runlog":
        return [
            f'{{"query_id": "{query}", "system": "mine", "topk": [{", ".join(entries)}]}}'
            for query, own in itertools.groupby(spelled, key=lambda hit: hit[0])
            if (entries := [f'{{"item_id": "{item}", "score": {score}}}' for _, item, score in own])
        ]
    return table(form, ("query_id", "item_id", "score"), spelled)


def gold_lines(form: str, hits: list[Hit], decimals: int) -> list[str]:
    judged = [(query, item, f"{at % 3:.{decimals}f}") for at, (query, item, _) in enumerate(hits)]
    if form == "trec":
        return [f"{query} 0 {item} {grade}" for query, item, grade in judged]
    if form == "labels":
        return [
            f'{{"query_id": "{query}", "item_id": "{item}", "grade": {grade}}}'
            for query, item, grade in judged
        ]
    return table(form, ("query_id", "item_id", "grade"), judged)


def table(form: str, names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    separator = "," if form == "csv" else "\t"
    header = [] if form == "tsv" else [names]
    return [separator.join(row) for row in [*header, *rows]]


def text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def over_every_block(lines_of: Callable[[int], list[str]], least: int) -> list[str]:
    """Lines of which one goes over the end of every block; how numbers are spelled sees to it."""
    for decimals in range(20):
        lines = lines_of(decimals)
        data = text(lines)
        if all(data[at - 1 : at] != b"\n" for at in range(BLOCK, len(data), BLOCK)):
            assert len(data) > least
            return lines
    raise AssertionError("a line ends at the end of a block, however numbers are spelled")


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    """A run and its gold in every text format: as a file, packed, and as a folder of both."""
    folders = {}
    for size, least in {"over 64 KB": 1 << 16, "over 1 MB": 1 << 20}.items():
        folders[size] = tmp_path_factory.mktemp("large")
        hits = hits_of(least)
        for kind, forms, spell in (("run", RUNS, run_lines), ("gold", GOLDS, gold_lines)):
            for form in dict.fromkeys(forms):
                lines = over_every_block(lambda n, s=spell, f=form, h=hits: s(f, h, n), least)
                write(folders[size], f"{kind}-{form}", form, lines)
    return folders


def write(folder: Path, name: str, form: str, lines: list[str]) -> None:
    ending = ENDINGS[form]
    (folder / f"{name}.{ending}").write_bytes(text(lines))
    (folder / f"{name}.{ending}.gz").write_bytes(gzip.compress(text(lines), 1))
    (folder / name).mkdir()
    header = lines[:1] if form in ("csv", "tsv-with-header") else []
    rows = lines[len(header) :]
    cut = len(rows) * 3 // 4
    (folder / name / f"part-0.{ending}").write_bytes(text([*header, *rows[:cut]]))
    packed = gzip.compress(text([*header, *rows[cut:]]), 1)
    (folder / name / f"part-1.{ending}.gz").write_bytes(packed)


@pytest.fixture
def small_splits(spark):
    """Several tasks read each file, and begin and end in the middle of lines."""
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    spark.conf.set(name, str(4 * BLOCK))
    yield
    spark.conf.set(name, before)


def report_of(run, *arguments: str) -> dict[str, Any]:
    """The report of a command, without what only the local engine has."""
    done = run("eval", *arguments, "-m", MEASURES, "--json", "--no-bounds")
    assert done.code == 0, done.err
    report: dict[str, Any] = json.loads(done.out)
    for name in ("findings", "findings_of", "bounds_left_out"):
        report.pop(name, None)
    for system in report["systems"]:
        for name in ("failures", "sweep", "waterfalls", "latency"):
            system.pop(name, None)
    return report


@pytest.mark.usefixtures("small_splits")
@pytest.mark.parametrize(("form", "gold"), [*zip(RUNS, GOLDS, strict=True)])
@pytest.mark.parametrize(
    ("size", "shape"),
    [("over 64 KB", ""), ("over 1 MB", ""), ("over 1 MB", ".gz"), ("over 1 MB", "folder")],
)
def test_a_large_text_file_gives_the_local_report(
    run, places, monkeypatch, form, gold, size, shape
):
    monkeypatch.chdir(places[size])
    packing = "" if shape == "folder" else shape
    files = [f"run-{form}.{ENDINGS[form]}{packing}", f"gold-{gold}.{ENDINGS[gold]}{packing}"]
    asked = [f"run-{form}", f"gold-{gold}"] if shape == "folder" else files
    local = report_of(run, files[0], "--gold", files[1])
    there = report_of(run, asked[0], "--gold", asked[1], "--engine", "spark")
    if shape == "folder":
        # A folder has no digest.
        del local["inputs"], there["inputs"]
    assert json.dumps(there) == json.dumps(local)
    assert there["systems"][0]["measures"]["R@5"]["mean"] > 0


def test_the_first_lines_are_whole_wherever_a_block_ends(spark, tmp_path, monkeypatch):
    lines = ["q1 Q0 é 1 2 t\n", "q1 Q0 b 2 1 t\n"]
    (tmp_path / "run.trec").write_text("".join(lines))
    for size in range(1, 30):
        monkeypatch.setattr(inputs, "HEAD_BYTES", size)
        rows = inputs.open_rows(spark, str(tmp_path / "run.trec"), "run", None)
        whole = lines if size >= len("".join(lines).encode()) else lines[:1]
        assert rows.head.decode() == "".join(whole)
