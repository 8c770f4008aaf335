from __future__ import annotations

import gc
import json
import threading
import time
from uuid import UUID

import pytest
import small_corpus
from small_corpus import ask, ids

from karat.errors import CallError, InputError
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.search import CallRunner


@pytest.fixture
def made(tmp_path):
    """A system that calls ``find`` of a file with this text."""

    def make(text: str, call: str = "search.py:find", more: str = "", **shop):
        (tmp_path / "search.py").write_text(text, encoding="utf-8")
        spec = f'{{retriever: python, call: "{call}"{more}}}'
        return small_corpus.system(small_corpus.context(tmp_path, **shop), spec)

    return make


def returning(value: str) -> str:
    return f"from karat.retrieve.protocol import Hit\n\ndef find(text, k):\n    return {value}\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("['b', 'a']", [("b", None), ("a", None)]),
        ("[('b', 2), ('a', 2.5)]", [("b", 2.0), ("a", 2.5)]),
        ("[['b', 2], ['a', 1]]", [("b", 2.0), ("a", 1.0)]),
        ("{'a': 0.2, 'b': 0.9, 'c': 0.2}", [("b", 0.9), ("a", 0.2), ("c", 0.2)]),
        ("[{'chunk_id': 7, 'score': 1}, {'_id': 'x'}]", [("7", 1.0), ("x", None)]),
        ("[Hit('a', 0.5), Hit('b')]", [("a", 0.5), ("b", None)]),
        ("(x for x in [3, 1])", [("3", None), ("1", None)]),
        ("[]", []),
        ("['a', 'b', 'a']", [("a", None), ("b", None), ("a", None)]),
        ("['ü #1', '日本 語', '🍎']", [("ü #1", None), ("日本 語", None), ("🍎", None)]),
    ],
)
def test_every_shape_of_a_list_is_understood(made, value, expected):
    hits = ask(made(returning(value)), "anything")
    assert [(hit.item_id, hit.score) for hit in hits] == expected
    assert all(type(hit.item_id) is str for hit in hits)


def test_arrays_and_numbers_of_numpy_are_understood(made):
    found = made(
        "import numpy as np\n"
        "def find(text, k):\n"
        "    scores = np.array([0.5, 2.0, 1.0], dtype=np.float32)\n"
        "    order = np.argsort(-scores)\n"
        "    return [(np.array([10, 20, 30])[i], scores[i]) for i in order]\n"
    )
    hits = ask(found, "x")
    assert [(hit.item_id, hit.score) for hit in hits] == [("20", 2.0), ("30", 1.0), ("10", 0.5)]
    assert json.dumps([hit.score for hit in hits])


def test_a_mapping_brings_text_document_version_and_source(made):
    value = (
        "[{'id': 'c1', 'doc_id': 5, 'score': 0.5, 'text': 'body', 'version': "
        "__import__('datetime').date(2024, 5, 1), 'source': 'faq', 'similarity': 0.25, "
        "'more': 1, 'start': 7, 'end': 9}]"
    )
    assert ask(made(returning(value)), "x") == [
        Hit("c1", 0.5, "5", "2024-05-01", "faq", 0.25, "body", 7, 9)
    ]


def test_a_document_stands_for_the_item_only_where_there_is_no_other_id(made):
    value = "[{'doc_id': 'd1'}, {'doc_id': 'd1', 'id': 'c2'}]"
    assert ids(ask(made(returning(value)), "x")) == ["d1", "c2"]


def test_ids_may_be_uuids(made):
    one = UUID("12345678-1234-5678-1234-567812345678")
    assert ids(ask(made(returning(f"[__import__('uuid').UUID('{one}')]")), "x")) == [str(one)]


def test_more_than_k_is_cut_and_an_endless_generator_ends(made):
    text = "import itertools\ndef find(text, k):\n    return (str(i) for i in itertools.count())\n"
    assert ids(ask(made(text), "x", 3)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("None", "returned None; a list of ids"),
        ("'abc'", "returned 'abc'; a list of ids"),
        ("b'abc'", "returned b'abc'; a list of ids"),
        ("3.5", "returned 3.5; a list of ids"),
        ("{'a', 'b'}", "returned a set, which has no order; return a list"),
        ("Hit('a')", "a list of ids"),
        ("[None]", "returned None as a hit"),
        ("[1.5]", "returned 1.5 as a hit"),
        ("[True]", "returned the id True; ids must be text or whole numbers"),
        ("['']", "returned the id ''"),
        ("[('a', 0.5, 'text')]", "as a hit"),
        ("[('a', float('nan'))]", "returned the score nan for item 'a'; a finite number"),
        ("{'a': float('inf')}", "returned the score inf"),
        ("[('a', '0.5')]", "returned the score '0.5'"),
        ("[('a', None)]", "returned the score None"),
        ("[{'score': 1, 'body': ''}]", "without an id: its keys are ['score', 'body']"),
        ("{'hits': ['a']}", "returned the score ['a'] for item 'hits'"),
        ("[Hit('a', float('nan'))]", "returned the score nan"),
        ("[{'id': 'a', 'start': -1}]", "returned -1 as a place in the document of item 'a'"),
        ("__import__('polars').DataFrame({'a': [1]})", "returned DataFrame; a list of ids"),
    ],
)
def test_what_is_no_list_of_hits_is_refused_with_what_is_expected(made, value, told):
    found = made(returning(value))
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert told in str(caught.value)
    assert str(caught.value).startswith("search.py:find")
    assert "\n" not in str(caught.value)
    assert not caught.value.may_pass


def test_an_async_function_is_refused(made):
    found = made("async def find(text, k):\n    return []\n")
    with pytest.raises(CallError, match=r"is async; wrap it in a function that calls asyncio\.run"):
        ask(found, "x")


def test_an_exception_is_a_failed_call_in_one_line(made):
    found = made("def find(text, k):\n    raise KeyError('two\\nlines')\n")
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert str(caught.value) == "search.py:find raised KeyError: 'two\\nlines'"
    assert not caught.value.may_pass


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        ("ConnectionResetError('gone')", True),
        ("TimeoutError()", True),
        ("__import__('httpx').ConnectError('no')", True),
        ("__import__('httpx').ReadTimeout('slow')", True),
        ("ValueError('wrong')", False),
        ("OSError('disk')", False),
    ],
)
def test_what_may_pass_is_told_from_what_will_not(made, error, passes):
    found = made(f"def find(text, k):\n    raise {error}\n")
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert caught.value.may_pass is passes


def test_a_callable_may_say_itself_that_a_call_may_pass(made):
    found = made(
        "from karat.errors import CallError\n"
        "def find(text, k):\n    raise CallError('come back', may_pass=True, wait=7)\n"
    )
    with pytest.raises(CallError, match="come back") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    assert caught.value.wait == 7


def test_system_exit_is_a_failed_call(made):
    found = made("import sys\ndef find(text, k):\n    sys.exit('enough')\n")
    with pytest.raises(CallError, match="raised SystemExit: enough"):
        ask(found, "x")


def test_ctrl_c_goes_through(made):
    found = made("def find(text, k):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        ask(found, "x")


def test_a_call_that_takes_too_long_is_left_behind(made):
    found = made(
        "import time\n"
        "def find(text, k):\n"
        "    if text == 'slow':\n        time.sleep(30)\n"
        "    return [text]\n",
        timeout=0.2,
    )
    start = time.perf_counter()
    with pytest.raises(CallError) as caught:
        ask(found, "slow")
    assert time.perf_counter() - start < 5
    assert "took longer than 0.2 s" in str(caught.value)
    assert not caught.value.may_pass
    assert ids(ask(found, "fast")) == ["fast"]


def test_a_slow_generator_counts_as_the_call(made):
    found = made(
        "import time\ndef find(text, k):\n    yield 'a'\n    time.sleep(30)\n", timeout=0.2
    )
    with pytest.raises(CallError, match="took longer"):
        ask(found, "x")


def test_one_call_at_a_time_stays_in_the_thread_that_loaded_the_file(made):
    # A connection of sqlite3 works in one thread only.
    found = made(
        "import sqlite3\n"
        "base = sqlite3.connect(':memory:')\n"
        "base.execute('CREATE TABLE items (id TEXT)')\n"
        "base.execute(\"INSERT INTO items VALUES ('a'), ('b')\")\n"
        "def find(text, k):\n"
        "    return [row[0] for row in base.execute('SELECT id FROM items')]\n"
    )
    for _ in range(20):
        assert ids(ask(found, "x")) == ["a", "b"]


def test_threads_end_with_the_system(made):
    found = made("import threading\ndef find(text, k):\n    return [threading.get_ident()]\n")
    (own,) = ids(ask(found, "x"))
    (thread,) = [one for one in threading.enumerate() if str(one.ident) == own]
    assert thread is not threading.current_thread()
    del found
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_callable_that_takes_a_query_gets_it_whole(made):
    found = made(
        "from karat.retrieve.protocol import Query\n"
        "def find(query: Query, k):\n"
        "    return [query.query_id, query.text, query.attributes['language']]\n"
    )
    assert ids(ask(found, "text", language="pt")) == ["q1", "text", "pt"]


def test_k_may_be_a_keyword(made):
    found = made("def find(text, *, k):\n    return [text] * k\n")
    assert ids(ask(found, "x", 2)) == ["x", "x"]


def test_k_may_be_left_out(made):
    found = made("def find(text):\n    return [text, 'a', 'b']\n")
    assert ids(ask(found, "x", 2)) == ["x", "a"]


def test_options_go_to_the_callable(made):
    found = made(
        "def find(text, k, index, boost=1):\n    return [f'{index}-{boost}-{text}']\n",
        more=", options: {index: v2, boost: 3}",
    )
    assert ids(ask(found, "x")) == ["v2-3-x"]


def test_options_hold_secrets_by_name_and_messages_never_show_them(made):
    found = made(
        "def find(text, k, key):\n    raise ValueError(f'wrong key {key}')\n",
        more=', options: {key: "${SECRET}"}',
        environment={"SECRET": "hunter2hunter2"},
    )
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert "hunter2" not in str(caught.value)
    assert "${SECRET}" in str(caught.value)
    assert "hunter2" not in json.dumps(dict(found.meta))


def test_a_secret_is_not_halved_where_a_message_is_cut(made):
    found = made(
        "def find(text, k, key):\n    raise ValueError('x' * 290 + key)\n",
        more=', options: {key: "${SECRET}"}',
        environment={"SECRET": "hunter2" * 5},
    )
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert "hunter" not in str(caught.value)


def test_calls_run_side_by_side_where_the_user_wants_it(made):
    found = made(
        "import threading\n"
        "meet = threading.Barrier(3, timeout=10)\n"
        "def find(text, k):\n    meet.wait()\n    return [text]\n"
    )
    runner = CallRunner(found.find, 10, concurrency=3, retries=0)
    outcomes = [
        outcome.hits
        for _, outcome in runner.outcomes([Query(letter, letter) for letter in "abcdef"])
    ]
    assert [ids(hits) for hits in outcomes] == [[letter] for letter in "abcdef"]


def test_unknown_keys_are_refused(tmp_path):
    with pytest.raises(InputError, match="did you mean options"):
        small_corpus.system(
            small_corpus.context(tmp_path), "{retriever: python, call: a:b, option: {}}"
        )


def test_a_key_that_is_written_out_is_refused_without_repeating_it(tmp_path):
    for kind in ("python", "langchain"):
        spec = f"{{retriever: {kind}, call: a:b, options: {{deep: {{api_key: s3cret}}}}}}"
        with pytest.raises(InputError, match="api_key holds a credential") as caught:
            small_corpus.system(small_corpus.context(tmp_path), spec)
        assert "s3cret" not in str(caught.value)
