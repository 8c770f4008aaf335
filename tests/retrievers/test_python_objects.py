from __future__ import annotations

import pytest
import small_corpus
from small_corpus import ask, ids

from karat.errors import CallError, InputError, KaratError
from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner, FailedCall


@pytest.fixture
def made(tmp_path):
    """A system that calls ``find`` of a file with this text."""

    def make(text: str, call: str = "search.py:find", more: str = "", **shop):
        (tmp_path / "search.py").write_text(text, encoding="utf-8")
        spec = f'{{retriever: python, call: "{call}"{more}}}'
        return small_corpus.system(small_corpus.context(tmp_path, **shop), spec)

    return make


RETRIEVER = """\
from karat import Run
asked = []

class Whole:
    def search(self, queries, k):
        rows = queries.frame.rows(named=True)
        asked.append(len(rows))
        return Run.from_dict({
            row["query_id"]: {} if row["text"] == "none" else
            {f"{row['text']}-{i}": -abs(i - 1) for i in range(3)}
            for row in rows
        })

class Failing(Whole):
    def search(self, queries, k):
        import polars as pl
        ids = queries.frame["query_id"].to_list()
        calls = pl.DataFrame({"query_id": ids, "error": [
            "index is down" if one == "q2" else None for one in ids]})
        hits = pl.DataFrame({"query_id": ids, "item_id": ["a"] * len(ids), "rank": [1] * len(ids)})
        return Run.from_frame(hits, calls=calls)

class Other:
    def search(self, queries, k):
        return Run.from_dict({"q999": ["a"]})

class Wrong:
    def search(self, queries, k):
        return ["a"]

class OneByOne:
    def search(self, text: str, k: int):
        return [text]

class Ranked:
    def search(self, queries, k):
        import polars as pl
        return Run.from_frame(pl.DataFrame({
            "query_id": ["q1"] * 3, "item_id": ["a", "b", "a"], "rank": [2, 1, 3],
            "score": [9.0, 1.0, 0.5], "version": ["v1", None, None]}), order="rank")
"""


CLASS = """\
class Searcher:
    meta = {"embedding_model": {"name": "mine"}}

    def __init__(self, size=1):
        self.size = size

    def __call__(self, text, k):
        return [text] * self.size

def make(size=2):
    return Searcher(size)

ready = Searcher(3)
"""


@pytest.mark.parametrize(
    ("call", "more", "expected"),
    [
        ("search.py:Searcher", "", 1),
        ("search.py:Searcher", ", options: {size: 4}", 4),
        ("search.py:make", "", 2),
        ("search.py:make", ", options: {size: 5}", 5),
        ("search.py:ready", "", 3),
    ],
)
def test_a_class_a_factory_or_an_object_can_be_named(made, call, more, expected):
    found = made(CLASS, call, more)
    assert len(ask(found, "x")) == expected
    assert found.meta["embedding_model"] == {"name": "mine"}
    assert found.meta["call"] == call


@pytest.mark.parametrize(
    ("text", "call", "more", "told"),
    [
        (CLASS, "search.py:ready", ", options: {size: 4}", "it must take (text, k, size)"),
        (RETRIEVER + "\nready = Whole()", "search.py:ready", ", options: {size: 4}",
         "takes no options; leave them out"),
        (CLASS, "search.py:Searcher", ", options: {sise: 4}", "takes (size=1); it must take sise"),
        (CLASS, "search.py:nothing", "", "has no 'nothing'"),
        ("find = 3", "search.py:find", "", "is int, which can neither be called nor searched"),
        ("def find(a, b, c): return []", "search.py:find", "", "takes (a, b, c); it must take"),
        ("def find(): raise OSError('no')", "search.py:find", "", "made: OSError: no"),
        ("def find(): raise SystemExit(3)", "search.py:find", "", "made: SystemExit: 3"),
        ("def find(): return 4", "search.py:find", "", "can neither be called nor searched"),
        ("class find:\n  meta = {'a': {1}}\n  def __call__(self, t, k): ...", "search.py:find", "",
         "has a meta that JSON cannot hold"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_refused_before_any_call(made, text, call, more, told):
    with pytest.raises(KaratError) as caught:
        made(text, call, more)
    assert told in str(caught.value)
    assert "system 'one'" in str(caught.value)


def test_a_file_that_cannot_be_loaded_is_named(made, tmp_path):
    with pytest.raises(InputError, match=r"search\.py: failed to load: ValueError: no"):
        made("raise ValueError('no')")
    with pytest.raises(InputError, match="no such file"):
        small_corpus.system(
            small_corpus.context(tmp_path), '{retriever: python, call: "gone.py:find"}'
        )
    with pytest.raises(KaratError, match="failed while it was made: SystemExit"):
        made("raise SystemExit(1)")


def test_a_module_can_be_named(made, tmp_path):
    (tmp_path / "module_of_mine.py").write_text("def find(text, k):\n    return [text]\n")
    found = small_corpus.system(
        small_corpus.context(tmp_path), '{retriever: python, call: "module_of_mine:find"}'
    )
    assert ids(ask(found, "x")) == ["x"]


def batch(*texts: str) -> list[Query]:
    return [Query(f"q{at}", text) for at, text in enumerate(texts, 1)]


def test_an_object_that_searches_is_given_batches(made):
    found = made(RETRIEVER, "search.py:Whole")
    assert found.batch > 1
    answers = found.find(batch("x", "none", "y"), 2)
    assert [ids(answer.hits) for answer in answers] == [["x-1", "x-0"], [], ["y-1", "y-0"]]
    assert answers[0].hits[0].score == 0


def test_a_method_that_searches_batches_can_be_named(made):
    text = RETRIEVER.replace("search(self, queries, k)", "search(self, queries: 'Queries', k)")
    found = made(text + "\nwhole = Whole()\n", "search.py:whole.search")
    assert found.batch > 1
    assert ids(found.find(batch("x"), 1)[0].hits) == ["x-1"]


def test_a_function_that_searches_batches_gets_its_options(made):
    text = (
        "import karat\n"
        "def find(queries: karat.Queries, k, mark):\n"
        "    return karat.Run.from_dict({one: [mark] for one in queries.frame['query_id']})\n"
    )
    found = made(text, "search.py:find", ", options: {mark: m}")
    assert [ids(answer.hits) for answer in found.find(batch("x", "y"), 3)] == [["m"], ["m"]]


def test_a_method_that_searches_one_by_one_can_be_named(made):
    found = made(RETRIEVER, "search.py:OneByOne")
    assert found.batch == 1
    assert ids(ask(found, "x")) == ["x"]


def test_a_run_by_rank_keeps_its_order_and_its_duplicates(made):
    hits = made(RETRIEVER, "search.py:Ranked").find(batch("x"), 10)[0].hits
    assert [(hit.item_id, hit.score, hit.version) for hit in hits] == [
        ("b", 1.0, None),
        ("a", 9.0, "v1"),
        ("a", 0.5, None),
    ]


def test_in_a_batch_only_the_guilty_query_fails(made):
    found = made(RETRIEVER, "search.py:Failing")
    runner = CallRunner(found.find, 10, batch=found.batch, retries=0)
    outcomes = [outcome for _, outcome in runner.outcomes(batch("x", "y", "z"))]
    assert [isinstance(outcome, FailedCall) for outcome in outcomes] == [False, True, False]
    assert outcomes[1].reason == "search.py:Failing failed for query 'q2': index is down"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Other", "returned hits for query 'q999', which was not asked"),
        ("Wrong", "search returned list instead of a karat Run"),
    ],
)
def test_what_is_no_run_of_the_queries_is_refused(made, name, told):
    found = made(RETRIEVER, f"search.py:{name}")
    with pytest.raises(CallError, match=told):
        found.find(batch("x"), 1)
