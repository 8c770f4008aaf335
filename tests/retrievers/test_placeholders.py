"""Which variables of a karat.yaml are credentials, and what of an answer is hidden."""

from __future__ import annotations

import pytest

from karat.jobs.redaction import redactor
from karat.retrieve.build_context import BuildContext
from karat.retrieve.placeholders import credential_names
from karat.retrieve.protocol import Answer, Hit

PLACES = [
    ({"headers": {"Authorization": "Bearer ${A}", "X-Tenant": "${B}"}}, {"A"}),
    ({"headers": {"X-Api-Key": "${A}"}, "url": "http://${B}/"}, {"A"}),
    ({"url": "https://${A}:${B}@host/${C}"}, {"A", "B"}),
    ({"url": "https://host/?key=${A}&q=${B}"}, {"A"}),
    ({"params": {"api_key": "${A}"}, "body": [{"password": "${B}", "index": "${C}"}]}, {"A", "B"}),
    ({"options": {"key": "${A}", "index": "${B}"}}, {"A"}),
    ({"url": "http://h/${INDEX}", "dsn": "host=h dbname=${DB} password=${A}"}, {"A"}),
    ({"body": {"index": "${SEARCH_TOKEN}", "b": "${OPENAI_API_KEY}", "c": "${MY_PASSWORD}"}},
     {"SEARCH_TOKEN", "OPENAI_API_KEY", "MY_PASSWORD"}),
    ({"body": {"keywords": "${KEYWORDS}", "b": "${TENANT}", "c": "${AUTHOR}"}}, set()),
    ({}, set()),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "names"), PLACES)
def test_a_credential_is_one_by_its_place_or_its_name(spec, names):
    assert credential_names(spec) == names


def test_everything_in_an_answer_is_hidden_and_numbers_stay():
    answer = Answer(
        [Hit("x-s3cret-9", 0.5, "s3cret-9", "s3cret-9", "s3cret-9", 0.25, "s3cret-9", 1, 2)],
        lists={"raw": [Hit("s3cret-9")]},
        rewritten="find s3cret-9",
        source="s3cret-9",
    )
    BuildContext(secrets={"K": "s3cret-9"}, credentials={"K"}).hide([answer])
    name = "${K}"
    assert answer.hits == [Hit("x-${K}", 0.5, name, name, name, 0.25, name, 1, 2)]
    assert answer.lists == {"raw": [Hit(name)]}
    assert (answer.rewritten, answer.source) == ("find ${K}", name)


def test_a_short_spelling_that_any_id_may_hold_is_left():
    # The password in YW5uOnBhc3M= is "pass".
    hide = redactor({"K": "YW5uOnBhc3M="}, shortest=6)
    assert hide("password-reset#1") == "password-reset#1"
    assert hide("ann:pass YW5uOnBhc3M=") == "${K} ${K}"
