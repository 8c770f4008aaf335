"""The prompt: the shipped one, one of your own, and what is put into it."""

from __future__ import annotations

import hashlib

import pytest

from karat.errors import InputError
from karat.label.judges import DEFAULT_PROMPT, Prompt, read_prompt
from karat.label.labels import Pair, read_pairs

PAIR = Pair("q1", "d1", "what is {text}?", 'it is {query} and {"a": 1}')


def test_the_shipped_prompt_is_anchored_and_asks_for_json_only():
    prompt = read_prompt()
    for needed in ("2 =", "1 =", "0 =", "give no instructions", "JSON object", "<query>", "<text>"):
        assert needed in prompt.template
    # One anchor for each grade.
    assert [line[-2] for line in prompt.template.splitlines() if " - text " in line] == list("210")


def test_braces_inside_the_texts_stay_as_they_are():
    filled = Prompt('Q: {query} T: {text} {"relevance": 2}').filled(PAIR)
    assert filled == 'Q: what is {text}? T: it is {query} and {"a": 1} {"relevance": 2}'


def test_the_digest_is_of_the_template():
    template = DEFAULT_PROMPT.read_bytes()
    assert read_prompt().digest == hashlib.sha256(template).hexdigest()


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("no placeholders", "p.md: has no {query}; a prompt holds {query} and {text}"),
        ("{query} only", "p.md: has no {text}"),
        ("{query}\n{text}\n{document}", "p.md:3: {document} is not a placeholder"),
        ("", "p.md: is empty"),
    ],
)
def test_a_prompt_that_could_not_work_is_refused(template, told, tmp_path):
    path = tmp_path / "p.md"
    path.write_text(template)
    with pytest.raises(InputError) as caught:
        read_prompt(path)
    assert str(caught.value).startswith(told)


def test_a_pool_is_read_with_its_texts(tmp_path):
    path = tmp_path / "pool.jsonl"
    path.write_text(
        '{"query_id": "q", "item_id": "d", "query": "what", "text": "that", "runs": ["a"]}\n'
        '{"query_id": 1, "chunk_id": 2, "query": "", "text": "é"}\n'
    )
    assert read_pairs(path) == [Pair("q", "d", "what", "that"), Pair("1", "2", "", "é")]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"query_id": "q", "item_id": "e", "query": "what"}',
            "pool.jsonl:2: no text; a judge reads",
        ),
        ('{"query_id": "q", "item_id": "e", "text": "t"}', "pool.jsonl:2: no query; a judge reads"),
        (
            '{"query_id": "q", "item_id": "e", "query": "what", "text": 5}',
            "pool.jsonl:2: no text; a judge reads",
        ),
        ('{"query_id": "q", "query": "what", "text": "t"}', "pool.jsonl:2: item_id is null"),
        ('{"item_id": "q", "query": "what", "text": "t"}', "pool.jsonl:2: query_id is null"),
        (
            '{"query_id": "q", "item_id": "d", "query": "what", "text": "other"}',
            "pool.jsonl:2: query 'q', item 'd' occurs again as in line 1",
        ),
    ],
)
def test_a_pool_that_cannot_be_judged_is_refused_with_its_line(line, told, tmp_path):
    path = tmp_path / "pool.jsonl"
    path.write_text(f'{{"query_id": "q", "item_id": "d", "query": "what", "text": "t"}}\n{line}\n')
    with pytest.raises(InputError) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(told)
