from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from karat.cli.main import load_commands
from karat.measure.conventions import PROFILES, SETTABLE
from karat.measure.registry import MEASURES
from karat.reports.outputs import FORMS

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/score-a-run.md",
    "docs/conventions.md",
    "docs/compare-systems.md",
    "docs/bound-the-unjudged.md",
]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert page == loaded("generate").reference(), "run: python docs/generate.py"


@pytest.mark.parametrize("name", PAGES)
def test_examples_print_what_the_page_says(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert page == loaded("examples").refreshed(page), f"run: python docs/examples.py {name}"


def test_examples_that_are_refused_are_meant_to_be(run, files):
    for name in PAGES:
        for line in re.findall(r"^\$ (karat .*)$", (ROOT / name).read_text(), re.MULTILINE):
            assert ("ndgc" in line) == ("did you mean" in run(*_words(line)).err)


def _words(line: str) -> list[str]:
    import shlex

    return shlex.split(line.partition(" | ")[0].partition(" < ")[0])[1:]


def test_python_examples_are_true(files):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(code, {}, "README", "README.md", 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_everything_there_is_has_a_place_in_the_documentation():
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    conventions = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")
    for command in load_commands():
        assert f"### `karat {command} " in reference
    for name in MEASURES:
        assert f"| `{name}" in reference
    for name in PROFILES:
        assert f"`{name}`" in conventions
    for name in SETTABLE:
        assert f"| `{name}` |" in conventions
    for form in FORMS.values():
        assert form.about in reference
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for name in {name for text in sources for name in re.findall(r"\bKARAT_[A-Z_]+", text)}:
        assert f"| `{name}` |" in reference


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
