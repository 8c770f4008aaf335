"""Rerankers: a cross-encoder whose scores can be counted, a real bi-encoder, and callables."""

from __future__ import annotations

import hashlib
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import bm25s
import model_folders
import pytest

from karat.data.tables import Corpus
from karat.errors import CallError, InputError, UsageError
from karat.formats.settings import Place
from karat.project.config import read_config
from karat.retrieve.build_context import BuildContext, Items
from karat.retrieve.models import Embedder
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.stages import reranker
from karat.retrieve.system import build_system
from karat.retrieve.system_config import RerankOptions, parse_systems, run_digest

TEXTS = {
    "calm": "a calm sea",
    "storm": "a storm at sea and another storm",
    "tax": "filing the tax return",
    "gale": "the gale",
}
LIBRARIES = {name: version(name) for name in ("fastembed", "onnxruntime")}


def stage(folder, corpus=None, **form):
    items = None if corpus is None else Items(Corpus.from_dict(corpus))
    return reranker(RerankOptions(**form), items, BuildContext(folder=folder))


def crossed(folder, corpus=TEXTS, **form):
    return stage(folder, corpus, model=model_folders.CROSS, path=".", **form)


def hits(*names, **told):
    return [Hit(name, 10.0 - place, **told) for place, name in enumerate(names)]


def pairs(found):
    return [(hit.item_id, pytest.approx(hit.score, abs=1e-6)) for hit in found]


def test_the_model_reads_query_and_text_together(cross_encoder):
    found = crossed(cross_encoder).apply(
        Query("1", "storm at sea"), hits("tax", "calm", "storm", "gale")
    )
    # Shared tokens, less 0.01 a token of the text.
    assert pairs(found) == [
        ("storm", 4 - 0.07),
        ("calm", 1 - 0.03),
        ("gale", -0.02),
        ("tax", -0.04),
    ]


def test_equal_scores_keep_the_order_that_they_had(cross_encoder):
    corpus = {"a": "one two", "b": "three four", "c": "storm", "d": "five six"}
    found = crossed(cross_encoder, corpus).apply(Query("1", "storm"), hits("d", "b", "c", "a"))
    assert [hit.item_id for hit in found] == ["c", "d", "b", "a"]


def test_what_stands_below_the_top_is_dropped(cross_encoder):
    found = crossed(cross_encoder, top=2).apply(
        Query("1", "storm at sea"), hits("tax", "calm", "storm")
    )
    assert [hit.item_id for hit in found] == ["calm", "tax"]


def test_a_hit_keeps_what_else_is_known_of_it(cross_encoder):
    told = {"doc_id": "book", "version": "3", "source": "shelf", "similarity": 0.5}
    (found,) = crossed(cross_encoder).apply(Query("1", "sea"), hits("calm", **told))
    assert found == Hit("calm", found.score, **told)


def test_a_hits_own_text_comes_before_the_corpus(cross_encoder):
    own = [Hit("calm", 1.0, text="tax"), Hit("elsewhere", 0.5, text="storm")]
    found = crossed(cross_encoder).apply(Query("1", "storm"), own)
    assert pairs(found) == [("elsewhere", 0.99), ("calm", -0.01)]
    alone = stage(cross_encoder, None, model=model_folders.CROSS, path=".")
    assert pairs(alone.apply(Query("1", "storm"), own)) == pairs(found)


def test_titles_are_read_too(cross_encoder):
    corpus = {"a": {"title": "storm", "text": "calm"}, "b": {"title": None, "text": "sea"}}
    found = crossed(cross_encoder, corpus).apply(Query("1", "storm"), hits("b", "a"))
    assert pairs(found) == [("a", 1 - 0.02), ("b", -0.01)]


@pytest.mark.parametrize(
    ("corpus", "told"),
    [
        (
            None,
            "item 'x' has no text, and rerank needs one: name a corpus that holds it",
        ),
        (TEXTS, "item 'x' has no text, and rerank needs one"),
    ],
)
@pytest.mark.parametrize("kind", ["cross", "bi"])
def test_a_hit_without_a_text_is_a_failed_call(cross_encoder, minilm, corpus, told, kind):
    folder = cross_encoder if kind == "cross" else minilm
    name = model_folders.CROSS if kind == "cross" else model_folders.MINILM
    with pytest.raises(CallError) as caught:
        stage(folder, corpus, model=name, path=".", kind=kind).apply(Query("1", "sea"), hits("x"))
    assert told in str(caught.value)


def test_an_empty_list_stays_empty_and_odd_texts_are_read(cross_encoder, minilm):
    corpus = {"empty": "", "long": "sea " * 100_000}
    odd = [*hits(*corpus), Hit("half", 1.0, text="\ud83d sea")]
    for rerank in (
        crossed(cross_encoder, corpus),
        stage(minilm, corpus, model=model_folders.MINILM, path=".", kind="bi"),
    ):
        assert rerank.apply(Query("1", "sea"), []) == []
        assert len(rerank.apply(Query("1", "\udc00 sea"), odd)) == 3


def test_max_length_says_how_much_of_a_pair_is_read(cross_encoder):
    corpus = {"late": "a b c d e f g h storm"}
    query = Query("1", "storm")
    (whole,) = crossed(cross_encoder, corpus).apply(query, hits("late"))
    (short,) = crossed(cross_encoder, corpus, max_length=8).apply(query, hits("late"))
    assert whole.score == pytest.approx(1 - 0.09, abs=1e-6)
    assert short.score == pytest.approx(-0.04, abs=1e-6)  # [CLS] storm [SEP] a b c d [SEP]


def test_what_the_log_says_of_a_reranker(cross_encoder, minilm):
    told = crossed(cross_encoder, max_length=64).meta["reranker_model"]
    assert told["name"] == model_folders.CROSS
    assert (told["kind"], told["max_length"], len(told["sha256"])) == ("cross", 64, 64)
    told = stage(minilm, TEXTS, model=model_folders.MINILM, path=".", kind="bi").meta
    assert told["reranker_model"]["kind"] == "bi"
    assert told["reranker_model"]["dim"] == 384
    assert told["libraries"] == LIBRARIES


def test_a_bi_encoder_embeds_a_text_once(minilm, monkeypatch):
    embedded = []
    items = Embedder.items
    monkeypatch.setattr(
        Embedder, "items", lambda self, texts: embedded.extend(texts) or items(self, texts)
    )
    bi = stage(minilm, TEXTS, model=model_folders.MINILM, path=".", kind="bi")
    first = bi.apply(Query("1", "sea"), hits("calm", "storm"))
    again = bi.apply(Query("2", "sea"), hits("calm", "storm", "tax"))
    assert again[:2] == first
    assert len(embedded) == 3


def test_a_bi_encoder_gives_the_cosines_of_a_dense_system(minilm, tmp_path):
    spec = {"retriever": "dense", "model": model_folders.MINILM, "path": str(minilm)}
    corpus = Corpus.from_dict(TEXTS)
    context = BuildContext(corpus=lambda: corpus, folder=tmp_path, cache=tmp_path)
    dense = build_system(parse_systems({"dense": spec}, Place("karat.yaml"))["dense"], context)
    query = Query("1", "rough weather on the ocean")
    expected = [(hit.item_id, hit.score) for hit in dense.find([query], 4)[0].hits]
    bi = stage(minilm, TEXTS, model=model_folders.MINILM, path=".", kind="bi")
    found = bi.apply(query, hits("tax", "gale", "calm", "storm"))
    assert [hit.item_id for hit in found] == [item for item, _ in expected]
    assert [hit.score for hit in found] == pytest.approx([score for _, score in expected], abs=1e-6)
    assert [hit.similarity for hit in found] == [hit.score for hit in found]


def test_in_a_system_the_reranked_list_is_a_stage_of_its_own(cross_encoder, tmp_path):
    spec = {
        "retriever": "bm25",
        "k": 2,
        "k_raw": 3,
        "rerank": {"model": model_folders.CROSS, "path": str(cross_encoder)},
    }
    corpus = Corpus.from_dict(
        {"a": "sea sea sea", "b": "storm storm at sea sea", "c": "sea storm", "d": "tax"}
    )
    context = BuildContext(corpus=lambda: corpus, folder=tmp_path)
    system = build_system(parse_systems({"s": spec}, Place("karat.yaml"))["s"], context)
    (answer,) = system.find([Query("1", "storm sea")], 2)
    assert [hit.item_id for hit in answer.hits] == ["b", "a"]
    assert [hit.item_id for hit in answer.lists["rerank"]] == ["b", "a", "c"]
    assert sorted(hit.item_id for hit in answer.lists["raw"]) == ["a", "b", "c"]
    assert answer.latency["rerank"] > 0
    assert system.meta["reranker_model"]["kind"] == "cross"
    assert system.meta["libraries"] == {"bm25s": bm25s.__version__, **LIBRARIES}


@pytest.mark.parametrize(
    ("form", "error", "told"),
    [
        ({"model": "Xenova/ms-marco-MiniLM-L-7-v2"}, UsageError, "did you mean Xenova/ms-marco"),
        ({"model": model_folders.MINILM}, UsageError, "unknown model"),
        ({"model": model_folders.CROSS, "path": "none"}, InputError, "no such folder"),
        ({"model": model_folders.CROSS, "path": "."}, InputError, "holds no onnx/model.onnx"),
        ({"model": model_folders.CROSS, "kind": "bi"}, UsageError, "unknown model"),
        ({"model": model_folders.CROSS, "path": "other"}, CallError, "MiniLM-L-6-v2 failed: "),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, minilm, form, error, told):
    (tmp_path / "other" / "onnx").mkdir(parents=True)
    for file in minilm.iterdir():
        shutil.copy(file, tmp_path / "other" / ("onnx" if file.suffix == ".onnx" else ""))
    with pytest.raises(error) as caught:
        stage(tmp_path, TEXTS, **form)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


# Counts the words that a text shares with the query.
SCORE = """
from karat.retrieve.protocol import Query
from karat.retrieve.system import build_system

def shared(text, texts):
    return [len(set(text.split()) & set(one.split())) for one in texts]

def by_area(query: Query, texts):
    return [float(query.attributes["area"] in one) for one in texts]
"""


@pytest.fixture
def called(tmp_path):
    """A reranker by a callable of the source given."""

    def make(source=SCORE, name="shared", corpus=TEXTS, **form):
        (tmp_path / "scorer.py").write_text(source, encoding="utf-8")
        return stage(tmp_path, corpus, call=f"scorer.py:{name}", **form)

    return make


def test_a_callable_scores_each_text_beside_the_query(called):
    found = called().apply(Query("1", "storm at sea"), hits("tax", "calm", "storm", "gale"))
    assert [(hit.item_id, hit.score) for hit in found] == [
        ("storm", 3.0),
        ("calm", 1.0),
        ("tax", 0.0),
        ("gale", 0.0),
    ]


def test_a_callable_is_given_the_top_and_titles_and_a_hits_own_text(called):
    found = called(top=2).apply(Query("1", "storm at sea"), hits("tax", "calm", "storm"))
    assert [hit.item_id for hit in found] == ["calm", "tax"]
    corpus = {"a": {"title": "storm", "text": "calm"}}
    own = [Hit("a", 1.0), Hit("b", 0.5, text="storm sea")]
    found = called(corpus=corpus).apply(Query("1", "storm sea"), own)
    assert [(hit.item_id, hit.score) for hit in found] == [("b", 2.0), ("a", 1.0)]


def test_a_callable_that_takes_a_query_gets_all_of_it(called):
    query = Query("1", "anything", {"area": "tax"})
    found = called(name="by_area").apply(query, hits("calm", "tax"))
    assert [(hit.item_id, hit.score) for hit in found] == [("tax", 1.0), ("calm", 0.0)]


def test_a_callable_is_not_asked_for_an_empty_list(called):
    assert called("def shared(text, texts):\n    raise ValueError").apply(Query("1", "x"), []) == []


def test_numbers_of_other_libraries_are_numbers(called):
    source = (
        "import numpy as np\ndef shared(text, texts):\n    return np.arange(len(texts), dtype='f4')"
    )
    found = called(source).apply(Query("1", "sea"), hits("calm", "storm"))
    assert [(hit.item_id, hit.score) for hit in found] == [("storm", 1.0), ("calm", 0.0)]
    assert type(found[0].score) is float


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return [1.0]", "gave 1 scores for 2 texts"),
        ("return [1.0, float('nan')]", "gave nan for text 2 of 2; a finite number is expected"),
        ("return [float('-inf'), 0]", "gave -inf for text 1 of 2"),
        ("return [1, '2']", "gave '2' for text 2 of 2"),
        ("import numpy; return [numpy.float32('nan'), 1]", "for text 1 of 2"),
        ("return [True, 1]", "gave True for text 1 of 2"),
        ("return [None, 1]", "gave nothing for text 1 of 2"),
        ("return [10**400, 1]", "for text 1 of 2"),
        ("return 1.0", "gave float, not a list"),
        ("return None", "gave NoneType, not a list"),
        ("return 'ab'", "gave str, not a list"),
        ("return {'calm': 1.0, 'storm': 2.0}", "gave dict, not a list"),
        ("raise KeyError('glossary')", "raised KeyError: 'glossary'"),
    ],
)
def test_what_a_callable_gives_must_be_a_number_a_text(called, body, told):
    made = called(f"def shared(text, texts):\n    {body}")
    with pytest.raises(CallError) as caught:
        made.apply(Query("1", "sea"), hits("calm", "storm"))
    assert str(caught.value).startswith("rerank scorer.py:shared ")
    assert told in str(caught.value)


def test_the_example_of_the_page_is_a_scorer(called):
    page = Path(__file__).parents[2] / "docs" / "compose-a-system.md"
    (code,) = re.findall(r"```python\n# rules.py\n(def score.*?)```", page.read_text("utf-8"), re.S)
    found = called(code, "score").apply(Query("1", "a Storm at sea"), hits("tax", "calm", "storm"))
    assert [(hit.item_id, hit.score) for hit in found] == [("storm", 4), ("calm", 2), ("tax", 0)]


def test_a_text_that_is_nowhere_fails_the_call_of_a_callable_too(called):
    with pytest.raises(CallError, match="item 'x' has no text, and rerank needs one"):
        called().apply(Query("1", "sea"), hits("x"))


@pytest.mark.parametrize(
    ("form", "error", "told"),
    [
        ({"call": "none.py:score"}, InputError, "no such file"),
        ({"call": "scorer.py:scored"}, UsageError, "scorer.py has no 'scored'"),
        ({"call": "scorer.py:NUMBER"}, UsageError, "is int, which cannot be called"),
        ({"call": "scorer.py:one"}, UsageError, "takes (text); it must take (query, texts)"),
        ({"call": "scorer"}, UsageError, "names no callable"),
    ],
)
def test_a_callable_that_cannot_work_is_refused(tmp_path, form, error, told):
    (tmp_path / "scorer.py").write_text("NUMBER = 1\ndef one(text): ...", encoding="utf-8")
    with pytest.raises(error) as caught:
        stage(tmp_path, TEXTS, **form)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("rerank", "told"),
    [
        ("{}", "rerank takes either a model or a call, and neither is given"),
        ("{top: 5}", "rerank takes either a model or a call, and neither is given"),
        (
            "{model: a, call: 'b.py:c'}",
            "rerank takes either a model or a call, and both are given",
        ),
        ("{call: 'b.py:c', path: models}", "path is for a model; leave it out beside call"),
        ("{call: 'b.py:c', kind: cross}", "kind is for a model; leave it out beside call"),
        ("{call: 'b.py:c', max_length: 9}", "max_length is for a model; leave it out"),
        ("{call: 'b.py:c', threads: 1}", "threads is for a model; leave it out beside call"),
        ("{call: ' '}", "call is ' '; it must be module:callable or file.py:callable"),
    ],
)
def test_a_system_names_a_model_or_a_callable(tmp_path, rerank, told):
    path = tmp_path / "karat.yaml"
    path.write_text(f"systems:\n  s:\n    retriever: bm25\n    rerank: {rerank}\n", "utf-8")
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert told in str(caught.value)
    assert "karat.yaml:4" in str(caught.value)


def test_a_log_names_the_callable_and_its_file(called, tmp_path):
    told = called().meta["reranker_model"]
    assert (told["call"], told["kind"]) == ("scorer.py:shared", "call")
    assert told["sha256"] == hashlib.sha256((tmp_path / "scorer.py").read_bytes()).hexdigest()


def test_a_log_is_not_used_again_once_the_callables_file_has_changed(tmp_path):
    spec = {"retriever": "bm25", "k": 2, "rerank": {"call": "scorer.py:shared"}}
    system_config = parse_systems({"s": spec}, Place("karat.yaml"))["s"]
    corpus = Corpus.from_dict(TEXTS)
    context = BuildContext(corpus=lambda: corpus, folder=tmp_path)
    (tmp_path / "scorer.py").write_text(SCORE, encoding="utf-8")
    before = run_digest(system_config, context, [], k=2)
    assert run_digest(system_config, context, [], k=2) == before
    (tmp_path / "scorer.py").write_text(SCORE.replace("len", "-len"), encoding="utf-8")
    assert run_digest(system_config, context, [], k=2) != before


def test_a_long_text_in_a_system_is_no_file(tmp_path):
    rules = [{"match": "|".join(f"word{n}" for n in range(60)), "to": "all"}]
    spec = {"retriever": "route", "of": {"all": "bm25"}, "rules": rules, "default": "all"}
    system_config = parse_systems({"s": spec}, Place("karat.yaml"))["s"]
    corpus = Corpus.from_dict(TEXTS)
    assert run_digest(system_config, BuildContext(corpus=lambda: corpus, folder=tmp_path), [], k=2)


def test_in_a_system_a_callables_list_is_the_stage_rerank(tmp_path):
    (tmp_path / "scorer.py").write_text(SCORE, encoding="utf-8")
    spec = {"retriever": "bm25", "k": 2, "k_raw": 3, "rerank": {"call": "scorer.py:shared"}}
    corpus = Corpus.from_dict({"a": "sea sea sea", "b": "a storm at sea", "c": "sea", "d": "tax"})
    context = BuildContext(corpus=lambda: corpus, folder=tmp_path)
    system = build_system(parse_systems({"s": spec}, Place("karat.yaml"))["s"], context)
    (answer,) = system.find([Query("1", "storm sea")], 2)
    assert answer.lists["rerank"][0].item_id == answer.hits[0].item_id == "b"
    assert len(answer.hits) == 2
    assert len(answer.lists["rerank"]) == len(answer.lists["raw"]) == 3
    assert system.meta["reranker_model"]["call"] == "scorer.py:shared"
    assert system.meta["libraries"] == {"bm25s": bm25s.__version__}
