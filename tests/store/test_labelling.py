"""Label sets and judgments: none is ever deleted, and a rater's newest on an item counts."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from karat.errors import UsageError
from karat.store import (
    AddedJudgments,
    LabelItem,
    NameTakenError,
    NewJudgment,
    NotStoredError,
    Store,
)

EAST = timezone(timedelta(hours=12))
JANUARY = datetime(2026, 1, 1, 12, tzinfo=UTC)


def items(count: int = 3) -> list[LabelItem]:
    return [LabelItem(f"q{i // 2}", f"d{i}", f"query {i // 2}", f"text {i}") for i in range(count)]


@pytest.fixture
def set_id(store: Store) -> int:
    return store.add_label_set("first", items(), now=JANUARY).id


def grades(store: Store, set_id: int, **which) -> list[tuple[str, int, float | None]]:
    return [(one.rater, one.position, one.grade) for one in store.judgments(set_id, **which)]


def test_a_set_keeps_its_items_in_their_order(store):
    given = [*items(), LabelItem("q9", "c#1", "wo?", "hier", facts={"title": "T", "as_of": "2026"})]
    made = store.add_label_set(" pool one ", given, about="Top 5 of two systems.", now=JANUARY)
    assert (made.name, made.size, made.about) == ("pool one", 4, "Top 5 of two systems.")
    assert made.made_at == JANUARY
    assert store.label_set(made.id) == made
    found = store.label_items(made.id)
    assert found == [replace(one, position=place) for place, one in enumerate(given)]
    assert asdict(found[3]) == {
        "position": 3,
        "query_id": "q9",
        "item_id": "c#1",
        "query": "wo?",
        "text": "hier",
        "facts": {"as_of": "2026", "title": "T"},
    }
    assert made.document()["made_at"] == "2026-01-01T12:00:00Z"


def test_the_same_items_again_are_the_set_that_is_there(store, set_id):
    again = store.add_label_set("another name", items())
    assert (again.id, again.name) == (set_id, "first")
    assert store.add_label_set("turned round", items()[::-1]).id == set_id
    assert [one.item_id for one in store.label_items(set_id)] == ["d0", "d1", "d2"]
    fewer = store.add_label_set("fewer", items(2))
    assert fewer.id != set_id
    retold = [replace(one, text=one.text + "!") for one in items()]
    told = [replace(one, facts={"as_of": "2026"}) for one in items()]
    for name, other in (("other", retold), ("told", told)):
        assert store.add_label_set(name, other).id not in (set_id, fewer.id)
    assert [one.name for one in store.label_sets()] == ["told", "other", "fewer", "first"]
    assert len({one.digest for one in store.label_sets()}) == 4


def test_a_set_and_its_judgments_are_added_together_or_not_at_all(store):
    said = [NewJudgment(at, "Ana", at) for at in range(3)]
    with pytest.raises(UsageError, match="has no position 3"):
        store.add_judged_set("first", items(), [*said, NewJudgment(3, "Ana", 1)])
    with pytest.raises(UsageError, match="grade"):
        store.add_judged_set("first", items(), [*said, NewJudgment(0, "Ben", 101)])
    made = store.add_judged_set("first", items(), said)
    assert (made.new, made.judgments) == (True, AddedJudgments(3, 0))
    assert [one.name for one in store.label_sets()] == ["first"]
    # The same items in another order: positions are those of the items that were given.
    turned = [NewJudgment(at, "Ben", at) for at in range(3)]
    again = store.add_judged_set("turned round", items()[::-1], turned)
    assert (again.set, again.new, again.judgments) == (made.set, False, AddedJudgments(3, 0))
    assert grades(store, made.set.id, rater="Ana") == [("Ana", 0, 0), ("Ana", 1, 1), ("Ana", 2, 2)]
    assert grades(store, made.set.id, rater="Ben") == [("Ben", 2, 0), ("Ben", 1, 1), ("Ben", 0, 2)]


def test_two_sets_never_share_a_name(store, set_id):
    told = r"^label set 1 is called 'first' already, and has other pairs or texts; give this one"
    for name in ("first", " first "):
        with pytest.raises(NameTakenError, match=told):
            store.add_label_set(name, items(2))
    assert len(store.label_sets()) == 1
    # What is there by its items needs no name of its own.
    assert store.add_label_set("first", items()).id == set_id


@pytest.mark.parametrize(
    ("name", "wrong", "told"),
    [
        ("x", [], "at least one item"),
        ("x", [*items(), items()[1]], r"'q0' and the item 'd1' are in the set twice"),
        ("  ", items(), "a label set needs a name"),
        ("x" * 256, items(), "too long a name; at most 255"),
        (" 1 ", items(), "cannot be called '1': whole numbers are the ids of sets"),
        ("-07", items(), "cannot be called '-07'"),
        ("١٢", items(), "cannot be called '١٢'"),
    ],
)
def test_a_set_that_cannot_be_labelled_is_refused_and_makes_no_store(store, name, wrong, told):
    with pytest.raises(UsageError, match=told):
        store.add_label_set(name, wrong)
    with pytest.raises(UsageError, match="no time zone"):
        store.add_label_set("x", items(), now=datetime(2026, 1, 1))
    store.check()
    with pytest.raises(Exception, match="no history here"):
        store.label_sets()


def test_a_judgment_is_told_whole(store, set_id):
    given = store.judge(set_id, 2, " Ana ", 3, rationale="says so", now=JANUARY)
    assert store.judgments(set_id) == [given]
    assert given.document() == {
        "id": given.id,
        "set_id": set_id,
        "position": 2,
        "rater": "Ana",
        "grade": 3.0,
        "rationale": "says so",
        "given_at": "2026-01-01T12:00:00Z",
        "withdrawn_at": None,
        "source": "human",
    }


def test_the_newest_of_a_rater_on_an_item_counts_and_the_older_stays(store, set_id):
    store.judge(set_id, 0, "Ana", 1)
    store.judge(set_id, 0, "Ben", 2)
    store.judge(set_id, 1, "Ana", None)
    store.judge(set_id, 0, "Ana", 0)
    assert grades(store, set_id) == [("Ben", 0, 2), ("Ana", 1, None), ("Ana", 0, 0)]
    assert grades(store, set_id, rater="Ana") == [("Ana", 1, None), ("Ana", 0, 0)]
    assert grades(store, set_id, rater="nobody") == []
    assert [one.grade for one in store.judgments(set_id, every=True)] == [1, 2, None, 0]


def test_taking_back_brings_back_what_was_said_before(store, set_id):
    store.judge(set_id, 0, "Ana", 1)
    store.judge(set_id, 1, "Ana", 2)
    store.judge(set_id, 0, "Ana", 3)
    store.judge(set_id, 0, "Ben", 0)
    moment = JANUARY + timedelta(days=1)
    taken = store.take_back(set_id, " Ana", now=moment)
    assert (taken.position, taken.grade, taken.withdrawn_at) == (0, 3, moment)
    assert grades(store, set_id, rater="Ana") == [("Ana", 0, 1), ("Ana", 1, 2)]
    assert store.take_back(set_id, "Ana").grade == 2
    assert store.take_back(set_id, "Ana").grade == 1
    assert store.take_back(set_id, "Ana") is None
    assert store.take_back(set_id, "nobody") is None
    assert grades(store, set_id) == [("Ben", 0, 0)]
    every = store.judgments(set_id, every=True)
    assert [(one.grade, one.withdrawn_at is None) for one in every] == [
        (1, False),
        (2, False),
        (3, False),
        (0, True),
    ]


def test_sets_do_not_mix(store, set_id):
    other = store.add_label_set("other", items(2)).id
    store.judge(set_id, 0, "Ana", 1)
    store.judge(other, 0, "Ana", 2)
    assert grades(store, other) == [("Ana", 0, 2)]
    assert store.take_back(set_id, "Ana").grade == 1
    assert grades(store, other) == [("Ana", 0, 2)]


def test_a_grade_comes_back_as_it_was_given(store, set_id):
    for grade in (0, 3, 0.5, 100, 1e-9, None):
        assert store.judge(set_id, 0, "Ana", grade).grade == grade
        assert store.judgments(set_id)[0].grade == grade


def test_a_grade_that_is_none_is_refused(store, set_id):
    for grade in (-1, 100.1, float("nan"), float("inf"), True, "2", 10**310):
        with pytest.raises(UsageError, match=r"^grade .*: give a number from 0 to 100, or none"):
            store.judge(set_id, 0, "Ana", grade)
    assert store.judgments(set_id) == []


RATERS = ("", "  ", "a\nb", "a\0b", "x" * 101, "\u202eana", "\udc80", 7)


def test_a_rater_without_a_plain_name_is_refused(store, set_id):
    uses = [
        lambda rater: store.judge(set_id, 0, rater, 1),
        lambda rater: store.take_back(set_id, rater),
        lambda rater: store.judgments(set_id, rater=rater),
    ]
    told = r"^rater .*: use 1 to 100 printable characters$"
    for use, rater in product(uses, RATERS):
        with pytest.raises(UsageError, match=told):
            use(rater)


def test_the_same_letters_are_the_same_rater_however_they_are_typed(store, set_id):
    store.judge(set_id, 0, unicodedata.normalize("NFD", "Zoë"), 1)
    store.judge(set_id, 0, unicodedata.normalize("NFC", "Zoë "), 2)
    assert grades(store, set_id) == [("Zoë", 0, 2)]
    assert store.judge(set_id, 0, "x" * 100, 1).rater == "x" * 100


def test_a_position_that_is_not_there_is_refused_with_those_that_are(store, set_id):
    for position in (-1, 3, 10**30, 1.0, None, "1"):
        with pytest.raises(UsageError, match=r"^label set 1 has no position .*; it has 0 to 2$"):
            store.judge(set_id, position, "Ana", 1)


def test_a_set_that_is_not_there_is_refused(store, set_id):
    uses = [
        store.label_set,
        store.label_items,
        store.judgments,
        lambda id: store.judge(id, 0, "Ana", 1),
        lambda id: store.judge_many(id, []),
        lambda id: store.take_back(id, "Ana"),
        lambda id: store.withdraw(id, 1),
    ]
    for use, number in product(uses, (0, 2, -1, 10**30)):
        with pytest.raises(
            NotStoredError, match=rf"^no label set {number} in .*; karat labels list"
        ):
            use(number)


def test_any_text_can_be_labelled(store):
    odd = [LabelItem("q", "d\udc80", "\0", "שלום 🥕 <script>" * 10_000, facts={"\0": "\udc80"})]
    made = store.add_label_set("\0", odd, about="\0")
    found = store.label_items(made.id)[0]
    assert (found.query_id, found.item_id, found.query) == ("q", "d?", "\ufffd")
    assert found.text == odd[0].text
    assert store.add_label_set("again", odd).id == made.id
    assert store.judge(made.id, 0, "Ana", 1, rationale="a\0b").rationale == "a\ufffdb"
    assert store.judgments(made.id)[0].rationale == "a\ufffdb"


def test_the_database_itself_keeps_judgments_of_nothing_out(store, set_id):
    store.judge(set_id, 0, "Ana", 1)
    added = "INSERT INTO karat_judgments (set_id, position, rater, rationale, given_at)"
    added += " VALUES (1, 9, 'Ana', '', '2026-01-01')"
    with (
        pytest.raises(Exception, match=r"(?i)foreign key"),
        store._database.writing() as connection,
    ):
        connection.execute(text(added))


def test_a_decision_is_no_vote_and_counts_beside_what_its_giver_said(store, set_id):
    store.judge(set_id, 0, "Ana", 1)
    decided = store.judge(set_id, 0, "Ana", 3, source="adjudication")
    assert (decided.decides, decided.document()["source"]) == (True, "adjudication")
    assert grades(store, set_id) == [("Ana", 0, 1), ("Ana", 0, 3)]
    assert store.take_back(set_id, "Ana").grade == 1
    assert store.take_back(set_id, "Ana") is None
    assert grades(store, set_id) == [("Ana", 0, 3)]


def test_a_decision_replaces_those_of_everybody_before(store, set_id):
    store.judge(set_id, 0, "Ana", 1)
    store.judge(set_id, 1, "Ana", 2, source="adjudication")
    store.judge(set_id, 0, "Ana", 3, source="adjudication")
    newest = store.judge(set_id, 0, "Ben", 0, source="adjudication")
    assert grades(store, set_id) == [("Ana", 0, 1), ("Ana", 1, 2), ("Ben", 0, 0)]
    assert grades(store, set_id, rater="Ana") == [("Ana", 0, 1), ("Ana", 1, 2)]
    assert grades(store, set_id, rater="Ben") == [("Ben", 0, 0)]
    assert len(store.judgments(set_id, rater="Ana", every=True)) == 3
    store.withdraw(set_id, newest.id)
    assert grades(store, set_id) == [("Ana", 0, 1), ("Ana", 1, 2), ("Ana", 0, 3)]


def test_a_decision_that_was_replaced_is_one_more_when_it_is_made_again(store, set_id):
    first, second = (NewJudgment(0, who, 1, source="adjudication") for who in ("Ana", "Ben"))
    for row in (first, second, first):
        assert store.judge_many(set_id, [row]) == AddedJudgments(1, 0)
        assert store.judge_many(set_id, [row]) == AddedJudgments(0, 1)
    assert grades(store, set_id) == [("Ana", 0, 1)]


@pytest.mark.parametrize("source", ["human", "adjudication"])
def test_what_is_said_now_replaces_what_another_clock_put_ahead(store, set_id, source):
    ahead = datetime.now(UTC) + timedelta(hours=20)
    for grade, say in (
        (1, lambda: store.judge(set_id, 0, "Ana", 1, source=source)),
        (2, lambda: store.judge_many(set_id, [NewJudgment(0, "Ana", 2, source=source)])),
        (3, lambda: store.judge(set_id, 0, "Ana", 3, source=source)),
    ):
        row = NewJudgment(0, "Ana", 0, f"before {grade}", source, ahead + timedelta(hours=grade))
        store.judge_many(set_id, [row])
        assert grades(store, set_id) == [("Ana", 0, 0)]
        say()
        assert grades(store, set_id) == [("Ana", 0, grade)]
    times = [one.given_at for one in store.judgments(set_id, every=True)]
    assert len(set(times)) == 6


def test_the_last_moment_there_is_can_still_be_replaced(store, set_id):
    last = datetime.max.replace(tzinfo=UTC)
    store.judge(set_id, 0, "Ana", 0, now=last)
    store.judge(set_id, 0, "Ana", 2)
    assert grades(store, set_id) == [("Ana", 0, 2)]


def test_one_judgment_is_withdrawn_by_its_id_and_only_once(store, set_id):
    first = store.judge(set_id, 0, "Ana", 1)
    second = store.judge(set_id, 1, "Ana", 2, source="adjudication")
    moment = JANUARY + timedelta(days=1)
    assert store.withdraw(set_id, first.id, now=moment).withdrawn_at == moment
    assert store.judgments(set_id) == [second]
    with pytest.raises(UsageError, match="judgment 1 was withdrawn before"):
        store.withdraw(set_id, first.id)
    other = store.add_label_set("other", items(2)).id
    for place, id in ((set_id, 9), (set_id, 10**30), (other, second.id)):
        with pytest.raises(NotStoredError, match=f"no judgment {id} in label set {place}"):
            store.withdraw(place, id)
    store.withdraw(set_id, second.id)
    assert store.judgments(set_id) == []
    assert len(store.judgments(set_id, every=True)) == 2


def test_what_was_given_later_counts_though_it_came_into_the_store_before(store, set_id):
    """An import brings what was said before, and elsewhere."""
    late, early = JANUARY + timedelta(days=2), JANUARY
    store.judge(set_id, 0, "Ana", 2, now=late)
    store.judge_many(set_id, [NewJudgment(0, "Ana", 1, given_at=early)])
    assert grades(store, set_id) == [("Ana", 0, 2)]
    assert [one.grade for one in store.judgments(set_id, every=True)] == [1, 2]
    assert store.take_back(set_id, "Ana").grade == 2
    assert grades(store, set_id) == [("Ana", 0, 1)]


def test_many_judgments_are_added_once(store, set_id):
    told = [
        NewJudgment(0, "Ana", 2, "says so", "judge"),
        NewJudgment(1, "Ana", None),
        NewJudgment(0, "Ben", 0, "", "qrels of May"),
    ]
    assert store.judge_many(set_id, told) == AddedJudgments(added=3, known=0)
    assert store.judge_many(set_id, told) == AddedJudgments(added=0, known=3)
    said = store.judgments(set_id)
    assert [(one.rater, one.grade, one.rationale, one.source) for one in said] == [
        ("Ana", 2, "says so", "judge"),
        ("Ana", None, "", "human"),
        ("Ben", 0, "", "qrels of May"),
    ]
    assert len({one.given_at for one in said}) == 1
    changed = [replace(told[0], rationale="does not"), replace(told[1], grade=0), told[2]]
    assert store.judge_many(set_id, changed) == AddedJudgments(added=2, known=1)
    # What counts now is another, so the old is new again.
    assert store.judge_many(set_id, told) == AddedJudgments(added=2, known=1)
    assert len(store.judgments(set_id, every=True)) == 7
    assert store.judge_many(set_id, []) == AddedJudgments(0, 0)


def test_what_has_its_own_time_is_there_if_it_was_ever_said_then(store, set_id):
    times = [JANUARY + timedelta(hours=at) for at in range(4)]
    told = [
        NewJudgment(0, "Ana", 1, given_at=times[0]),
        NewJudgment(0, "Ana", 2, given_at=times[1], withdrawn_at=times[3]),
        NewJudgment(0, "Ana", 1, given_at=times[2]),
        NewJudgment(0, "Ana", 1, given_at=times[2], source="adjudication"),
    ]
    assert store.judge_many(set_id, told) == AddedJudgments(4, 0)
    assert store.judge_many(set_id, told[::-1]) == AddedJudgments(0, 4)
    every = store.judgments(set_id, every=True)
    assert [(one.grade, one.given_at) for one in every[:3]] == [
        (1, times[0]),
        (2, times[1]),
        (1, times[2]),
    ]
    assert [one.withdrawn_at for one in every] == [None, times[3], None, None]
    assert [one.source for one in store.judgments(set_id)] == ["human", "adjudication"]
    store.judge(set_id, 0, "Ana", 3)
    assert store.judge_many(set_id, told) == AddedJudgments(0, 4)
    assert store.judgments(set_id)[-1].grade == 3


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (NewJudgment(9, "Ana", 1), "has no position 9; it has 0 to 2"),
        (NewJudgment(True, "Ana", 1), "has no position True"),
        (NewJudgment(0, "A\tna", 1), "use 1 to 100 printable"),
        (NewJudgment(0, "Ana", 101), "give a number from 0 to 100"),
        (NewJudgment(0, "Ana", 1, source=" "), "source ' ': use 1 to 255 printable"),
        (NewJudgment(0, "Ana", 1, given_at=datetime(2026, 1, 1)), "no time zone"),
        (
            NewJudgment(0, "Ana", 1, given_at=JANUARY.replace(year=9999)),
            r"given_at is 9999-01-01T12:00:00\+00:00, which is still to come",
        ),
        (
            NewJudgment(0, "Ana", 1, given_at=JANUARY, withdrawn_at=JANUARY.replace(year=9999)),
            "withdrawn_at is 9999",
        ),
        (
            NewJudgment(0, "Ana", 1, given_at=datetime(1, 1, 1, tzinfo=EAST)),
            r"0001-01-01T00:00:00\+12:00 is no time in UTC",
        ),
    ],
)
def test_of_many_judgments_all_are_added_or_none(store, set_id, wrong, told):
    with pytest.raises(UsageError, match=told):
        store.judge_many(set_id, [NewJudgment(0, "Ana", 1), wrong])
    assert store.judgments(set_id) == []
    with pytest.raises(NotStoredError, match="no label set 7"):
        store.judge_many(7, [NewJudgment(0, "Ana", 1)])


ACTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["Ana", "Ben"]),
            st.integers(0, 2),
            st.sampled_from([None, 0.0, 1.0, 2.0]),
        ),
        st.sampled_from(["Ana", "Ben"]),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    with Store.open(tmp_path_factory.mktemp("labels") / "history.db") as store:
        yield store


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ACTS)
def test_any_sequence_of_acts_leaves_what_a_stack_a_rater_leaves(kept, acts):
    """A rater's judgments are a stack: undo takes the top off, and the last on an item counts."""
    number = len(kept.label_sets()) if kept._database.address.path.exists() else 0
    own = [LabelItem(f"{number}-{place}", "d", "", "") for place in range(3)]
    set_id = kept.add_label_set(f"set {number}", own).id
    stacks: dict[str, list[tuple[int, float | None]]] = {"Ana": [], "Ben": []}
    for act in acts:
        if isinstance(act, str):
            taken = kept.take_back(set_id, act)
            expected = stacks[act].pop() if stacks[act] else None
            assert (taken and (taken.position, taken.grade)) == expected
        else:
            rater, position, grade = act
            kept.judge(set_id, position, rater, grade)
            stacks[rater].append((position, grade))
    for rater, stack in stacks.items():
        found = {one.position: one.grade for one in kept.judgments(set_id, rater=rater)}
        assert found == dict(stack)
    given = [act for act in acts if not isinstance(act, str)]
    assert len(kept.judgments(set_id, every=True)) == len(given)
