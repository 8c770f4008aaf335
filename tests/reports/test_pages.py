"""Pages and results: every renderer draws any page, and a result saves itself in every form."""

from __future__ import annotations

import json

import polars as pl
import pytest

from karat.data.columns import Source
from karat.errors import UsageError
from karat.pages import AnalysisResult, Chart, Page, Section, Sentence
from karat.pages.html import page_document, page_html
from karat.pages.markdown import page_markdown

PAGE = Page(
    "A <b>title</b>",
    ["plain", Sentence("WORSE  b fell", "bad", ["by 0.1"])],
    [
        Section("Table", [["measure", "a|b"], ["R@5", "0.5000\t[0.4, 0.6]"]], ["a *line*"]),
        Chart("left out", {}),
    ],
    ["a note"],
)


def result(**inputs) -> AnalysisResult:
    body = {"systems": [{"name": "a", "n": 3, "deep": {"mean": 0.5}, "list": [1]}]}
    return AnalysisResult(body, {"profile": "karat"}, lambda _: PAGE, inputs)


def test_markup_in_a_page_stays_text():
    assert "<b>" not in page_html(PAGE)
    assert "A &lt;b&gt;title" in page_document(PAGE)
    text = page_markdown(PAGE)
    assert r"# A \<b\>title" in text
    assert r"| measure | a\|b |" in text
    assert r"a \*line\*" in text


@pytest.mark.parametrize("render", [page_html, page_markdown, lambda page: repr(result())])
def test_every_form_has_headline_reasons_table_lines_and_notes(render):
    text = render(PAGE)
    parts = ["plain", "WORSE", "by 0.1", "Table", "0.5000", "line", "a note"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_document_has_its_inputs_with_their_digests(tmp_path):
    file = tmp_path / "gold.txt"
    file.write_text("q1 0 a 1\n")
    source = Source.of(file)
    inputs = result(gold=source, runs=[source], queries=None, fields={"a": "b"}).to_dict()["inputs"]
    assert inputs["gold"] == {"name": "gold.txt", "sha256": source.digest()}
    assert inputs["runs"] == [inputs["gold"]]
    assert (inputs["queries"], inputs["fields"]) == (None, {"a": "b"})


def test_the_frame_has_a_row_per_system_and_dotted_names():
    assert result().to_frame().to_dicts() == [{"name": "a", "n": 3, "deep.mean": 0.5}]


def test_a_result_saves_itself_in_the_form_of_the_suffix(tmp_path):
    for name in ("r.json", "r.csv", "r.parquet", "r.md", "r.html"):
        result().save(tmp_path / "new" / name)
    folder = tmp_path / "new"
    assert json.loads((folder / "r.json").read_text()) == result().to_dict()
    assert (folder / "r.csv").read_text() == "name,n,deep.mean\na,3,0.5\n"
    assert pl.read_parquet(folder / "r.parquet").equals(result().to_frame())
    assert (folder / "r.html").read_text().startswith("<!doctype html>")
    # Nothing else is left behind.
    assert len(list(folder.iterdir())) == 5
    with pytest.raises(UsageError, match=r"\.json"):
        result().save(folder / "r.docx")


def test_a_notebook_shows_the_page():
    assert result()._repr_html_() == page_html(PAGE)
