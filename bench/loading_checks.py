"""Whether what the clients were told is what the store holds, counted again by other means."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from karat.store import Judgment, Store

Events = Mapping[str, list[list[Any]]]


def wrong_in_the_store(
    where: str, said: Events, unanswered: Events, imported: Iterable[tuple[int, int]] | None = None
) -> list[str]:
    """What was lost, is there twice, or is not as it was said; nothing where all is right."""
    with Store.open(where) as store:
        every, counting = store.judgments(1, every=True), store.judgments(1)
    raters = {*said, *unanswered}
    found: dict[str, list[Judgment]] = defaultdict(list)
    for one in every:
        if one.rater in raters:
            found[one.rationale].append(one)
    wrong = [
        told
        for rater in raters
        for told in _of_rater(rater, said.get(rater, []), unanswered.get(rater, []), found)
    ]
    wrong += [f"nobody said {rationale!r}" for rationale in found]
    wrong += _counting(said, unanswered, counting)
    return wrong if imported is None else wrong + _imported(every, imported)


def _imported(every: Iterable[Judgment], imported: Iterable[tuple[int, int]]) -> list[str]:
    there = Counter((one.position, one.grade) for one in every if one.rater == "File")
    wanted = Counter(imported)
    return [
        f"imported {one} is there {there[one]} times"
        for one in there | wanted
        if there[one] != wanted[one]
    ]


def _of_rater(
    rater: str,
    said: list[list[Any]],
    unanswered: list[list[Any]],
    found: dict[str, list[Judgment]],
) -> list[str]:
    """Every judgment that was answered once, as it was said; what was not answered once at most."""
    wrong = []
    undone = {event[3] for event in said if event[0] == "undo"}
    perhaps = {event[3] for event in unanswered if event[0] == "undo"}
    for _, position, grade, rationale in (event for event in said if event[0] == "judge"):
        there = found.pop(rationale, [])
        if len(there) != 1:
            wrong.append(f"{rationale!r} was answered and is there {len(there)} times")
            continue
        (one,) = there
        if (one.rater, one.position, one.grade) != (rater, position, grade):
            wrong.append(f"{rationale!r} is kept as {one}")
        if (one.withdrawn_at is not None) != (rationale in undone) and rationale not in perhaps:
            wrong.append(f"{rationale!r}: undone is {rationale in undone}, kept is {one}")
    for event in unanswered:
        if event[0] == "judge" and len(found.pop(event[3], [])) > 1:
            wrong.append(f"{event[3]!r} was not answered and is there twice")
    return wrong


def _counting(said: Events, unanswered: Events, counting: Iterable[Judgment]) -> list[str]:
    """What counts is what a rater said last of each item and did not take back."""
    kept = {(one.rater, one.position): one.rationale for one in counting}
    wanted: dict[tuple[str, int], str] = {}
    for rater, events in said.items():
        for event in still_said(events):
            wanted[rater, event[1]] = event[3]
    # Whether an unanswered write was kept is not known, so neither is what counts there.
    unsure = {(rater, event[1]) for rater, events in unanswered.items() for event in events}
    return [
        f"of {key} counts {kept.get(key)!r}, not {wanted.get(key)!r}"
        for key in wanted.keys() | {key for key in kept if key[0] in said}
        if kept.get(key) != wanted.get(key) and key not in unsure
    ]


def still_said(events: list[list[Any]]) -> list[list[Any]]:
    """The judgments that were not taken back; an undo takes back the last."""
    live: list[list[Any]] = []
    for event in events:
        if event[0] == "judge":
            live.append(event)
        else:
            live.pop()
    return live


def wrong_in_the_agreement(document: Mapping[str, Any], where: str) -> list[str]:
    """Whether progress, pairs and majority of the server's answer equal a count by hand."""
    with Store.open(where) as store:
        counting, size = store.judgments(1), store.label_set(1).size
    grades: dict[str, dict[int, float | None]] = defaultdict(dict)
    for one in counting:
        grades[one.rater][one.position] = one.grade
    progress = {one["rater"]: (one["judged"], one["cannot_tell"]) for one in document["raters"]}
    wanted = {
        rater: (len(own), sum(grade is None for grade in own.values()))
        for rater, own in grades.items()
    }
    wrong = [] if progress == wanted else [f"progress is {progress}, counted {wanted}"]
    told = {tuple(one["raters"]): one for one in document["pairs"]}
    for pair in combinations(sorted(grades), 2):
        wrong += _wrong_pair(told.pop(pair, None), grades[pair[0]], grades[pair[1]], pair)
    wrong += [f"a pair of nobody: {pair}" for pair in told]
    counts = _majority(grades, size)
    return wrong + ([] if counts == document["majority"] else [f"majority is not {counts}"])


def _wrong_pair(
    told: Mapping[str, Any] | None,
    first: Mapping[int, float | None],
    second: Mapping[int, float | None],
    pair: tuple[str, str],
) -> list[str]:
    both = [
        (first[at], second[at])
        for at in first
        if first[at] is not None and second.get(at) is not None
    ]
    same = sum(a == b for a, b in both)
    if told is None or (told["n"], told["same"]) != (len(both), same):
        return [f"{pair}: told {told}, counted {len(both)} and {same}"]
    if len(both) < 10:
        return [] if told["kappa"] is None else [f"{pair}: a kappa of {len(both)} items"]
    n = len(both)
    chance = sum(
        sum(a == grade for a, _ in both) * sum(b == grade for _, b in both) for grade in range(4)
    ) / (n * n)
    kappa = None if chance == 1 else (same / n - chance) / (1 - chance)
    if (kappa is None) != (told["kappa"] is None):
        return [f"{pair}: kappa is {told['kappa']}, counted {kappa}"]
    if kappa is not None and abs(kappa - told["kappa"]) > 1e-9:
        return [f"{pair}: kappa is {told['kappa']}, counted {kappa}"]
    return []


def _majority(grades: Mapping[str, Mapping[int, float | None]], size: int) -> dict[str, int]:
    counts = {"graded": 0, "ties": 0, "cannot_tell": 0, "unjudged": 0}
    for at in range(size):
        given = [own[at] for own in grades.values() if at in own]
        votes = sorted(Counter(one for one in given if one is not None).values())
        if not given:
            counts["unjudged"] += 1
        elif not votes:
            counts["cannot_tell"] += 1
        elif len(votes) > 1 and votes[-1] == votes[-2]:
            counts["ties"] += 1
        else:
            counts["graded"] += 1
    return counts
