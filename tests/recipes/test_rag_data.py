"""The help centre in three languages: its files hold together."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from rag_files import LANGUAGES, grades, lines

from karat.project.recipes import init


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return init("rag", str(tmp_path_factory.mktemp("recipes") / "rag")).folder


@pytest.fixture(scope="module")
def chunks(folder) -> dict[str, dict]:
    return {one["chunk_id"]: one for one in lines(folder / "corpus.jsonl")}


@pytest.fixture(scope="module")
def documents(folder) -> dict[str, dict]:
    return {one["doc_id"]: one for one in lines(folder / "documents.jsonl")}


@pytest.fixture(scope="module")
def questions(folder) -> list[dict]:
    return lines(folder / "dataset.jsonl")


@pytest.fixture(scope="module")
def answerable(questions) -> list[dict]:
    return [one for one in questions if not one["no_answer"]]


def test_there_is_enough_of_every_language(chunks, questions):
    spoken = Counter(one["language"] for one in chunks.values())
    asked = Counter(one["language"] for one in questions)
    assert set(spoken) == set(asked) == set(LANGUAGES)
    assert len(chunks) >= 156
    assert min(spoken.values()) >= 50
    assert len(questions) >= 132
    assert min(asked.values()) >= 40


def test_a_chunk_stands_where_it_says_in_its_document(chunks, documents):
    for one in chunks.values():
        text = documents[one["doc_id"]]["text"]
        assert text[one["start"] : one["end"]] == one["text"]
        assert one["chunk_id"].partition("#")[0] == one["doc_id"]
        assert 30 <= len(one["text"].split()) <= 80
    for before, after in pairwise(chunks.values()):
        if before["doc_id"] == after["doc_id"]:
            assert before["end"] < after["start"]
    assert {one["doc_id"] for one in chunks.values()} == set(documents)


def test_documents_and_chunks_say_the_same(chunks, documents):
    for one in chunks.values():
        whole = documents[one["doc_id"]]
        assert whole["metadata"] == {"lang": one["language"], "version": one["version"]}
        assert whole["title"] == one["title"]
        assert whole["url"].startswith(f"https://help.example/{one['language']}/")
    assert {one["source"] for one in chunks.values()} == {"policies", "guides", "community"}


def test_some_documents_have_an_older_edition_and_some_only_one_country(documents):
    older = {name: name.partition("@")[0] for name in documents if "@" in name}
    assert len(older) == 9
    for old, new in older.items():
        dates = [documents[name]["metadata"]["version"] for name in (old, new)]
        assert dates[0] < dates[1]
    subjects = Counter(name.rpartition("-")[0] for name in documents if "@" not in name)
    alone = {name for name, languages in subjects.items() if languages == 1}
    assert alone == {"sales-tax", "bank-transfer", "boleto", "pix", "cupon", "billetera"}


def test_gold_and_negatives_are_chunks_of_the_questions_language(chunks, answerable):
    assert len(answerable) >= 120
    for one in answerable:
        gold, negatives = grades(one), one["negatives"]
        assert gold
        assert max(gold.values()) == 2
        assert len(negatives) == len(set(negatives)) >= 2
        assert not set(negatives) & set(gold)
        assert {chunks[item]["language"] for item in [*gold, *negatives]} == {one["language"]}
        assert all(chunks[item]["version"] <= one["as_of"] for item in gold)
        assert one["source"] == chunks[one["gold_evidence"][0]]["source"]


def test_questions_are_complete_and_no_two_are_alike(questions):
    for one in questions:
        assert one["difficulty"] in ("easy", "medium", "hard")
        assert one["answer_type"] in ("short_fact", "multi_step", "instruction")
        assert one["ideal_answer"].endswith(".")
        assert one["tags"]
    texts = [" ".join(one["question"].lower().split()) for one in questions]
    assert len(texts) == len(set(texts))
    assert [one["query_id"] for one in questions] == [f"q_{n:03}" for n in range(1, len(texts) + 1)]


def test_questions_without_an_answer_have_no_gold(questions):
    without = [one for one in questions if one["no_answer"]]
    assert len(without) >= 12
    assert all(not one["gold_evidence"] and not one["negatives"] for one in without)


def test_special_questions_are_there(questions):
    turns = Counter(one["group_id"] for one in questions if "group_id" in one)
    assert len(turns) >= 12
    assert min(turns.values()) >= 2
    assert sum("entities" in one for one in questions) >= 6


def test_hops_are_what_the_answer_takes_and_not_all_that_says_it(questions):
    """A FAQ that says the same again is gold, and no hop."""
    needed = {
        ("lost",): ("refunds#p1", "shipping#p3"),
        ("installments", "coupons"): ("installments#p3", "coupons#p2"),
        ("invoices",): ("invoices#p2", "invoices#p3"),
    }
    hops = [one for one in questions if "multi_hop" in one]
    assert Counter(one["language"] for one in hops) == dict.fromkeys(LANGUAGES, 3)
    for one in hops:
        wanted = needed[tuple(tag for tag in one["tags"] if tag != "deadline")]
        told = [hop["evidence"] for hop in one["multi_hop"]["hops"]]
        assert tuple(re.sub("-(en|pt|es)#", "#", item) for item in told) == wanted
        assert one["multi_hop"]["requires"] == len(told) == 2
        assert all(grades(one)[item] == 2 for item in told)


def test_what_answers_literally_has_the_highest_grade(chunks, questions):
    asked = {one["query_id"]: one for one in questions}
    for query, item, words in (
        ("q_004", "coupons-en#p1", "gift card is not a code: it pays like money and is never cash"),
        ("q_065", "coupons-pt#p1", "Cartão-presente não é cupom: paga como dinheiro e nunca é dev"),
    ):
        assert words in chunks[item]["text"]
        assert grades(asked[query])[item] == 2


def test_answers_agree_with_their_evidence(chunks, questions):
    answers = {one["query_id"]: one["ideal_answer"] for one in questions}
    # Who may send 500 a day is not cut to 1.000 at night.
    assert "R$ 500 por dia" in answers["q_097"]
    assert "1.000" not in answers["q_097"]
    assert "dos clientes verificados cai para R$ 1.000" in chunks["limits-pt#p1"]["text"]
    assert "hasta 10 en la Patagonia" in chunks["shipping-es#p1"]["text"]
    assert answers["q_129"].startswith("Con el envío estándar, hasta 10 días hábiles")


def test_each_language_is_written_in_one_way(chunks, questions):
    texts = {language: [] for language in LANGUAGES}
    for one in chunks.values():
        texts[one["language"]] += [one["title"], one["text"]]
    for one in questions:
        texts[one["language"]] += [one["question"], one["ideal_answer"], *one.get("entities", [])]
    english, portuguese, spanish = ("\n".join(texts[language]) for language in LANGUAGES)
    british = r"\b(colour|neighbour|personalis|organis|cancell(ed|ing)|centre|favourite)"
    assert not re.search(british, english, re.IGNORECASE)
    assert "organização" not in portuguese
    assert "não tem preço" not in portuguese
    assert spanish.count("ARCA (ex AFIP)") >= 3
    assert spanish.count("AFIP") == spanish.count("ARCA") == spanish.count("ARCA (ex AFIP)")


def test_a_post_quotes_the_policy_and_is_judged_like_it(chunks, answerable):
    for language in ("en", "pt", "es"):
        policy, quote = f"refunds-{language}#p2", f"c-refund-late-{language}#p3"
        assert chunks[policy]["text"] in chunks[quote]["text"]
        assert chunks[quote]["source"] == "community"
        both = [grades(one) for one in answerable if policy in grades(one)]
        assert len(both) >= 3
        assert all(own[policy] == own[quote] for own in both)


def test_spans_are_the_gold_chunks_of_the_same_questions(folder, chunks, questions):
    spans = lines(folder / "spans.jsonl")
    assert len(spans) == len(questions) >= 132
    assert sum(bool(grades(one)) for one in spans) >= 120
    for one, whole in zip(spans, questions, strict=True):
        assert (one["query_id"], one["question"]) == (whole["query_id"], whole["question"])
        places = [f"{c['doc_id']}:{c['start']}-{c['end']}" for c in map(chunks.get, grades(whole))]
        assert list(grades(one).items()) == list(zip(places, grades(whole).values(), strict=True))


def test_the_eval_set_is_sound_and_its_notes_are_the_intended_ones(folder, run):
    result = run("check", str(folder / "karat.yaml"), "--json")
    assert result.code == 0
    found = json.loads(result.out)["findings"]
    # P@5 >= 0.60 is not passed by an ideal ranking either, and three posts quote a policy.
    assert [(one["level"], one["kind"]) for one in found] == [
        ("warning", "gate_needs_more"),
        ("note", "near_duplicate_items"),
        ("note", "low_ceiling"),
    ]
