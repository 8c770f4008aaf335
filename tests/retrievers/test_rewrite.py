"""Rewriting: the text that is searched for, what the log says of it, and callables that fail."""

from __future__ import annotations

import json

import pytest
from given_lists import ids

from karat.data.tables import Corpus
from karat.errors import CallError, InputError, UsageError
from karat.retrieve import bm25 as words
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.run_log import record_of
from karat.retrieve.stages import Rewrite, Threshold
from karat.retrieve.system import SearchSystem
from karat.retrieve.system_config import RewriteOptions
from karat.retrieve.text_rules import NormaliseOptions, TextRules, text_rules

CALLS = """
from __future__ import annotations

import karat.retrieve.protocol as protocol
from karat.errors import CallError
from karat.retrieve.protocol import Query


def swap(text):
    return text.replace("pie", "tart")


def whole(query: Query) -> str:
    return f"{query.text} {query.attributes['language']}"


def dotted(query: protocol.Query) -> str:
    return query.query_id


class Shouting:
    def __call__(self, text):
        return text.upper()


shout = Shouting()
number = 5


def nothing(text):
    return None


def blank(text):
    return " "


def broken(text):
    raise KeyError(text)


def busy(text):
    raise CallError("model is busy", may_pass=True, wait=4)


def offline(text):
    raise ConnectionRefusedError("no route")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    return tmp_path


def rewrite(folder, name, both=False):
    form = RewriteOptions.model_validate({"call": f"calls.py:{name}", "both": both})
    return Rewrite.of(form, BuildContext(folder=folder))


@pytest.mark.parametrize(
    ("name", "text"),
    [("swap", "apple tart"), ("whole", "apple pie en"), ("dotted", "q1"), ("shout", "APPLE PIE")],
)
def test_a_callable_gets_the_text_or_the_whole_query(folder, name, text):
    asked = Query("q1", "apple pie", {"language": "en"})
    new = rewrite(folder, name).apply(asked)
    assert (new.text, new.query_id, new.attributes) == (text, "q1", asked.attributes)
    assert asked.text == "apple pie"


@pytest.mark.parametrize(
    ("name", "message", "may_pass"),
    [
        ("nothing", "rewrite gave NoneType instead of text", False),
        ("blank", "rewrite gave a blank text", False),
        ("broken", "rewrite calls.py:broken raised KeyError: 'apple'", False),
        ("busy", "model is busy", True),
        ("offline", "rewrite calls.py:offline raised ConnectionRefusedError: no route", True),
    ],
)
def test_a_callable_that_fails_fails_the_call(folder, name, message, may_pass):
    with pytest.raises(CallError, match=message) as caught:
        rewrite(folder, name).apply(Query("q1", "apple"))
    assert caught.value.may_pass == may_pass


def test_the_wait_that_a_callable_asks_for_is_kept(folder):
    with pytest.raises(CallError) as caught:
        rewrite(folder, "busy").apply(Query("q1", "apple"))
    assert caught.value.wait == 4


def test_a_callable_that_is_not_there_is_refused_before_anything_is_asked(folder):
    with pytest.raises(UsageError, match=r"calls\.py has no 'swop'; it has"):
        rewrite(folder, "swop")
    with pytest.raises(UsageError, match=r"calls\.py:number is int, which cannot be called"):
        rewrite(folder, "number")
    (folder / "calls.py").unlink()
    with pytest.raises(InputError, match=r"calls\.py: no such file"):
        rewrite(folder, "swap")


CORPUS = Corpus.from_dict({"t": "apple tart", "p": "apple pie", "r": "rye bread"})


def system(rewriting, rules=None, filters=()):
    bm25 = words.make(words.Options(), BuildContext(corpus=lambda: CORPUS), {})
    return SearchSystem(
        "s", bm25, k=2, rewrite=rewriting, rules=rules or TextRules(), filters=filters
    )


def test_the_rewritten_text_is_searched_for_and_both_texts_are_logged(folder):
    asked = Query("q1", "pie")
    answer = system(rewrite(folder, "swap")).find([asked], 2)[0]
    assert ids(answer.hits) == ["t"]
    assert "original" not in answer.lists
    assert "rewrite" in answer.latency
    record = record_of(asked, answer, {})
    assert (record["query"], record["rewritten"]) == ("pie", "tart")
    assert json.dumps(record)


def test_with_both_the_list_of_the_original_text_is_logged_too(folder):
    asked = [Query("q1", "pie"), Query("q2", "rye")]
    answers = system(rewrite(folder, "swap", both=True)).find(asked, 2)
    assert [ids(answer.hits) for answer in answers] == [["t"], ["r"]]
    assert [ids(answer.lists["original"]) for answer in answers] == [["p"], ["r"]]
    assert "original" in record_of(asked[0], answers[0], {})["stages"]


def test_the_original_list_goes_through_the_same_stages(folder):
    plain = system(rewrite(folder, "swap", both=True)).find([Query("q1", "pie")], 2)[0]
    least = plain.lists["original"][0].score + 0.01
    cut = system(rewrite(folder, "swap", both=True), filters=[Threshold(least)])
    answer = cut.find([Query("q1", "pie")], 2)[0]
    assert answer.lists["original"] == []
    assert list(answer.lists) == ["raw", "original", "threshold"]


def test_rules_of_texts_come_before_the_rewriting(folder):
    rules = text_rules(NormaliseOptions(), {"pastry": "pie"})
    asked = Query("q1", "APPLE  Pastry")
    answer = system(rewrite(folder, "swap"), rules).find([asked], 2)[0]
    assert answer.rewritten == "apple tart"
    assert record_of(asked, answer, {})["query"] == "APPLE  Pastry"


def test_a_rewrite_must_be_in_time(tmp_path):
    (tmp_path / "slow.py").write_text("import time\ndef rewrite(text):\n    time.sleep(5)\n")
    rewrite = Rewrite.of(
        RewriteOptions(call="slow.py:rewrite"), BuildContext(folder=tmp_path, timeout=0.1)
    )
    with pytest.raises(CallError, match=r"rewrite slow.py:rewrite took longer than 0.1 s"):
        rewrite.apply(Query("q", "apple"))


@pytest.mark.parametrize("spelled", ["key", "key * 30", "base64.b64encode(key.encode()).decode()"])
def test_a_secret_in_what_a_rewrite_raises_is_hidden_in_every_spelling(tmp_path, spelled):
    (tmp_path / "leaky.py").write_text(
        "import base64\nkey = 'hunter2/and+more'\n"
        f"def rewrite(text):\n    raise ValueError('x' * 280 + {spelled})\n"
    )
    context = BuildContext(folder=tmp_path, environment={"KEY": "hunter2/and+more"})
    assert context.expand("${KEY}") == "hunter2/and+more"
    with pytest.raises(CallError) as caught:
        Rewrite.of(RewriteOptions(call="leaky.py:rewrite"), context).apply(Query("q", "apple"))
    assert "hunter2" not in str(caught.value)
    assert "aHVudGVy" not in str(caught.value)
