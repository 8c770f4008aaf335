"""What is written is what is read again, in every format and for every kind."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eval_sets import read_eval_set
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.formats.readers import (
    read_corpus,
    read_gold,
    read_queries,
    read_run,
    scan_run,
    write_corpus,
    write_eval_set,
    write_gold,
    write_queries,
    write_run,
)
from karat.formats.registry import FORMATS

NASTY = st.one_of(
    st.sampled_from(
        [
            "007",
            "a#1",
            "doc:1-2",
            'say"hi"',
            "a,b",
            "it's",
            "été",
            "日本",
            "x\\y",
            "null",
            "1e5",
            "%",
            "NaN",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8).filter(
        lambda text: not text.startswith("#")
    ),
)
SPACED = st.one_of(
    NASTY, st.sampled_from(["a b", " lead", "two  spaces", "line\nend", "tab\there", "\u2028"])
)
SCORES = st.floats(allow_nan=False, allow_infinity=False)
GRADES = st.sampled_from([0.0, 1.0, 2.0, 0.5, -1.0, 3.25])
# Of several failures the first is shown as it is, not all of them as a group.
FAST = settings(max_examples=25, deadline=None, report_multiple_bugs=False)

# What a format cannot hold: blanks in ids, line ends in ids and texts, ids of queries other than
# their texts, attributes of queries, the scores of a run, hard negatives, queries without gold, and
# characters in ids, as in {"my-format": ","}.
NO_BLANKS = {"trec"}
LINES_ONLY = {"tsv"}
NO_QUERY_IDS: set[str] = set()
NO_ATTRIBUTES = {"tsv"}
NO_SCORES: set[str] = set()
NO_NEGATIVES = {"trec", "tsv", "beir", "labels", "dict"}
NO_EMPTY_GOLD = {"trec", "tsv", "beir", "labels", "csv", "tsv-with-header", "parquet"}
FORBIDDEN: dict[str, str] = {}


def ids_for(name: str) -> st.SearchStrategy[str]:
    ids = NASTY if name in NO_BLANKS | LINES_ONLY else SPACED
    forbidden = set(FORBIDDEN.get(name, ""))
    return ids.filter(lambda text: not forbidden & set(text)) if forbidden else ids


def carrying(kind: str) -> list[str]:
    return [form.name for form in FORMATS.values() if kind in form.carries]


def query_table(name: str, texts: dict[str, str]) -> Queries:
    """Return queries that a format can hold."""
    if name in NO_QUERY_IDS:
        texts = {text: text for text in texts.values() if text}
        assume(texts)
    return Queries.from_dict(texts)


def file_for(folder: str, name: str) -> Path:
    suffix = FORMATS[name].suffixes[0] if FORMATS[name].suffixes else ""
    return Path(folder) / f"file{suffix}"


def as_set(table: pl.DataFrame) -> set[tuple[object, ...]]:
    return set(table.iter_rows())


@pytest.mark.parametrize("name", carrying("gold"))
@given(data=st.data())
@FAST
def test_gold_survives_being_written(name: str, data: st.DataObject) -> None:
    ids = ids_for(name)
    grades = data.draw(
        st.dictionaries(
            ids, st.dictionaries(ids, GRADES, min_size=1, max_size=3), min_size=1, max_size=4
        )
    )
    gold = Gold.from_dict(grades)
    with TemporaryDirectory() as folder:
        path = file_for(folder, name)
        write_gold(gold, path, format=name)
        again = read_gold(path, format=name)
    frame = again.frame
    if "start" in frame.columns:
        spelled = pl.format("{}:{}-{}", "item_id", "start", "end")
        frame = frame.select("query_id", spelled.alias("item_id"), "grade")
    columns = ["query_id", "item_id", "grade"]
    assert as_set(frame.select(columns)) == as_set(gold.frame.select(columns))
    assert set(again.query_ids) == set(gold.query_ids)


@pytest.mark.parametrize("name", carrying("run"))
@given(data=st.data())
@FAST
def test_a_run_survives_being_written(name: str, data: st.DataObject) -> None:
    ids = ids_for(name)
    scores = data.draw(
        st.dictionaries(
            ids, st.dictionaries(ids, SCORES, min_size=1, max_size=4), min_size=1, max_size=4
        )
    )
    run = Run.from_dict(scores)
    with TemporaryDirectory() as folder:
        path = file_for(folder, name)
        write_run(run, path, format=name)
        again = read_run(path, format=name)
        blocks = [block.hits for block in scan_run(path, format=name).blocks()]
    if name in NO_SCORES:
        ranked = again.hits.sort("query_id", "rank").select("query_id", "item_id")
        assert as_set(ranked) == as_set(run.hits.select("query_id", "item_id"))
        of_rank = [(query, -scores[query][item]) for query, item in ranked.rows()]
        assert of_rank == sorted(of_rank), "the ranks follow the scores"
    else:
        assert as_set(again.hits.select("query_id", "item_id", "score")) == as_set(run.hits)
    assert pl.concat(blocks).equals(again.hits)


@pytest.mark.parametrize("name", carrying("run"))
def test_every_format_refuses_an_item_twice_if_strict(name: str, tmp_path: Path) -> None:
    hits = {"query_id": ["q", "q", "q"], "item_id": ["a", "b", "a"], "score": [3.0, 2.0, 1.0]}
    path = file_for(str(tmp_path), name)
    write_run(Run.from_frame(pl.DataFrame(hits)), path, format=name)
    if read_run(path, format=name).hits.height < 3:
        assert name == "dict", "its objects have every key once"
        path.write_text('{"q": ["a", "b", "a"]}')
    with pytest.raises(InputError, match="has item 'a' twice; --strict wants every item once"):
        read_run(path, format=name, strict=True)


@pytest.mark.parametrize("name", carrying("queries"))
@given(data=st.data())
@FAST
def test_queries_survive_being_written(name: str, data: st.DataObject) -> None:
    ids = ids_for(name)
    texts = data.draw(st.dictionaries(ids, ids.map(str.strip), min_size=1, max_size=5))
    queries = query_table(name, texts)
    with TemporaryDirectory() as folder:
        path = file_for(folder, name)
        write_queries(queries, path, format=name)
        again = read_queries(path, format=name)
    assert again.frame.select("query_id", "text").rows() == queries.frame.rows()


@pytest.mark.parametrize("name", [name for name in carrying("corpus") if name != "story"])
@given(data=st.data())
@FAST
def test_a_corpus_survives_being_written(name: str, data: st.DataObject) -> None:
    ids = ids_for(name)
    corpus = Corpus.from_dict(data.draw(st.dictionaries(ids, ids, min_size=1, max_size=5)))
    with TemporaryDirectory() as folder:
        path = file_for(folder, name)
        write_corpus(corpus, path, format=name)
        again = read_corpus(path, format=name)
    columns = ["item_id", "doc_id", "text"]
    assert again.frame.select(columns).rows() == corpus.frame.select(columns).rows()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "b c", "é"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
LIKE_JSON = st.one_of(
    st.sampled_from(['["a"]', "[]", "{}", '{"a": 1}', "[[1]]", "[1, 2", '["a" ]']),
    JSON_VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)),
)


@pytest.mark.parametrize("name", carrying("queries"))
@given(texts=st.dictionaries(LIKE_JSON, LIKE_JSON, min_size=1, max_size=3))
@FAST
def test_a_query_that_looks_like_json_stays_a_text(name: str, texts: dict[str, str]) -> None:
    queries = query_table(name, texts)
    with TemporaryDirectory() as folder:
        path = file_for(folder, name)
        write_queries(queries, path, format=name)
        again = read_queries(path, format=name)
    assert again.frame.select("query_id", "text").rows() == queries.frame.rows()


@pytest.mark.parametrize("name", [name for name in carrying("corpus") if name != "story"])
@given(texts=st.dictionaries(LIKE_JSON, LIKE_JSON, min_size=1, max_size=3))
@FAST
def test_an_item_that_looks_like_json_stays_a_text(name: str, texts: dict[str, str]) -> None:
    corpus = Corpus.from_dict({key: {"text": text, "title": text} for key, text in texts.items()})
    with TemporaryDirectory() as folder:
        path = file_for(folder, name)
        write_corpus(corpus, path, format=name)
        again = read_corpus(path, format=name)
    columns = ["item_id", "doc_id", "text", "title"]
    assert again.frame.select(columns).rows() == corpus.frame.select(columns).rows()


@given(texts=st.lists(LIKE_JSON, min_size=3, max_size=3))
@FAST
def test_what_a_log_says_of_run_and_call_stays_a_text(texts: list[str]) -> None:
    system, query, rewritten = texts
    calls = pl.DataFrame({"query_id": ["q"], "query": [query], "rewritten": [rewritten]})
    hits = pl.DataFrame({"query_id": ["q"], "item_id": ["d"], "score": [1.0]})
    run = Run.from_frame(hits, calls=calls, meta={"system": system, "note": query})
    with TemporaryDirectory() as folder:
        path = file_for(folder, "runlog")
        write_run(run, path, format="runlog")
        again = read_run(path, format="runlog")
    assert again.calls is not None
    assert again.calls.select(calls.columns).rows() == calls.rows()
    assert dict(again.meta) == dict(run.meta)


ATTRIBUTES = Queries.from_dict(
    {
        "q1": {
            "text": "one",
            "language": "pt-BR",
            "k": 5,
            "no_answer": False,
            "tags": ["a", "b, c"],
            "as_of": "2025-01-02",
            "group": "g1",
        },
        "q2": {
            "text": "two",
            "language": "en",
            "k": 3,
            "no_answer": True,
            "tags": [],
            "as_of": "2025-02-03",
            "group": "g2",
        },
    }
)


@pytest.mark.parametrize(
    "name", [name for name in carrying("queries") if name not in NO_QUERY_IDS | NO_ATTRIBUTES]
)
def test_attributes_keep_their_values_and_types(name: str, tmp_path: Path) -> None:
    path = file_for(str(tmp_path), name)
    write_queries(ATTRIBUTES, path, format=name)
    again = read_queries(path, format=name).frame
    assert again.select(ATTRIBUTES.frame.columns).equals(ATTRIBUTES.frame)


@pytest.mark.parametrize("name", carrying("gold"))
def test_spans_are_restored(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "query_id": ["q", "q"],
            "item_id": ["d:1", "e"],
            "grade": [1.0, 1.0],
            "start": [0, 7],
            "end": [5, 9],
        }
    )
    path = file_for(str(tmp_path), name)
    write_gold(Gold.from_frame(frame), path, format=name)
    again = read_gold(path, format=name).frame
    assert again.select(frame.columns).sort("item_id").equals(frame)


@pytest.mark.parametrize("name", [name for name in carrying("gold") if name not in NO_NEGATIVES])
def test_hard_negatives_stay_hard(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "query_id": ["q", "q", "q"],
            "item_id": ["a", "b", "c"],
            "grade": [2.0, 0.0, 0.0],
            "negative": [False, True, False],
        }
    )
    path = file_for(str(tmp_path), name)
    write_gold(Gold.from_frame(frame), path, format=name)
    again = read_gold(path, format=name).frame
    assert again.sort("item_id").equals(frame)


@pytest.mark.parametrize("name", [name for name in carrying("gold") if name not in NO_EMPTY_GOLD])
def test_queries_without_gold_are_kept(name: str, tmp_path: Path) -> None:
    path = file_for(str(tmp_path), name)
    write_gold(Gold.from_dict({"q1": {"d": 1}, "q2": {}}), path, format=name)
    assert set(read_gold(path, format=name).query_ids) == {"q1", "q2"}


def test_a_story_survives_being_written(tmp_path: Path) -> None:
    corpus = Corpus.from_dict(
        {"Sc1": "Anna finds a key.\nIt rains.", "Finale": "été at sea", "Ch 1": ""}
    )
    write_corpus(corpus, tmp_path / "story.cnl")
    assert read_corpus(tmp_path / "story.cnl").frame.rows() == corpus.frame.rows()


def test_a_run_by_rank_keeps_its_order_where_only_scores_count(tmp_path: Path) -> None:
    hits = pl.DataFrame(
        {"query_id": ["q", "q"], "item_id": ["b", "a"], "rank": [1, 2], "score": [0.1, 0.9]}
    )
    run = Run.from_frame(hits, order="rank")
    for name in ("trec", "csv", "dict", "parquet"):
        path = file_for(str(tmp_path), name)
        write_run(run, path, format=name)
        again = read_run(path, format=name).hits.sort("score", descending=True)
        assert again["item_id"].to_list() == ["b", "a"], name


@pytest.mark.parametrize("name", [form.name for form in FORMATS.values() if form.together])
def test_queries_and_gold_survive_together(name: str, tmp_path: Path) -> None:
    gold = Gold.from_dict({"q1": {"d1": 1.0, "d2": 2.0}, "q2": {"d3": 1.0}})
    path = file_for(str(tmp_path), name)
    sent = ATTRIBUTES
    if name in NO_QUERY_IDS | NO_ATTRIBUTES:
        sent = Queries.from_dict({"q1": "q1", "q2": "q2"})
    write_eval_set(sent, gold, path, format=name)
    queries, again = read_eval_set(path, format=None if name == "beir" else name)
    assert queries.frame.select(sent.frame.columns).equals(sent.frame)
    assert as_set(again.frame) == as_set(gold.frame)


def test_formats_without_texts_are_no_eval_sets(tmp_path: Path) -> None:
    gold = Gold.from_dict({"q1": {"d1": 1.0}})
    with pytest.raises(UsageError, match="does not hold queries and gold together"):
        write_eval_set(ATTRIBUTES, gold, tmp_path / "out.trec")
