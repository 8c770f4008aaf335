"""docs/seeds.md names a test for every requirement, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
CHAPTERS = {"story": "S", "rag": "R", "memory": "M", "ab": "A", "minimal": "N"}
_TEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)?")


def rows(chapter: str) -> list[list[str]]:
    """The cells of every table row of a chapter."""
    text = PAGE.partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    # The line above |---|---| is the head of its table.
    rules = {at for at, line in enumerate(lines) if set(line) <= set("|-: ")}
    told = [line for at, line in enumerate(lines) if not rules & {at, at + 1}]
    return [[one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]] for line in told]


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


@cache
def may_be_skipped(file: str) -> frozenset[str]:
    """The tests of a file that are not run everywhere: marked skipif, one by one or together."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    marked = [one for one in tree.body if isinstance(one, ast.Assign)]
    if any("pytestmark" in ast.unparse(one) and "skip" in ast.unparse(one) for one in marked):
        return names_in(file)
    tests = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    decorated = {one.name: map(ast.unparse, one.decorator_list) for one in tests}
    return frozenset(name for name, marks in decorated.items() if any("skip" in m for m in marks))


BETWEEN = "Where the documents contradict each other"


@pytest.mark.parametrize("chapter", [*CHAPTERS, BETWEEN])
def test_every_row_has_a_test_that_exists(chapter):
    assert len(rows(chapter)) >= (8 if chapter == BETWEEN else 20)
    for row in rows(chapter):
        named = _TEST.findall(row[-1])
        assert named, f"no test: {row[:3]}"
        assert all(row), f"an empty cell: {row[:3]}"
        for test in named:
            file, _, name = test.partition("::")
            assert (ROOT / file).is_file(), f"{row[0]}: {file} is not there"
            assert name in names_in(file), f"{row[0]}: {test} is not there"


@pytest.mark.parametrize("chapter", [*CHAPTERS, BETWEEN])
def test_every_row_has_a_test_that_runs_everywhere(chapter):
    for row in rows(chapter):
        named = [test.partition("::") for test in _TEST.findall(row[-1])]
        everywhere = [name for file, _, name in named if name not in may_be_skipped(file)]
        assert everywhere, f"only tests that may be skipped: {row[:3]}"


def test_what_may_be_skipped_is_known_by_its_marks():
    assert "test_an_existing_output_survives_a_failure" in may_be_skipped("tests/cli/test_ab.py")
    assert "test_the_golden_ndcg" not in may_be_skipped("tests/cli/test_ab.py")
    whole = "tests/measures/test_trec_golden.py"
    assert may_be_skipped(whole) == names_in(whole)


@pytest.mark.parametrize(("chapter", "letter"), CHAPTERS.items())
def test_requirements_are_numbered_without_a_gap(chapter, letter):
    numbers = [row[0] for row in rows(chapter) if re.fullmatch(r"[A-Z]\d+", row[0])]
    assert numbers == [f"{letter}{n}" for n in range(1, len(numbers) + 1)]


def test_no_requirement_stands_twice():
    told = Counter(row[2] for chapter in CHAPTERS for row in rows(chapter) if len(row) == 5)
    assert [text for text, count in told.items() if count > 1] == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_document_has_its_page_and_its_recipe(chapter):
    assert (ROOT / "docs" / f"seed-{chapter}.md").is_file()
    assert (ROOT / "src" / "karat" / "recipes" / chapter / "karat.yaml").is_file()
    assert f"(seed-{chapter}.md)" in PAGE
