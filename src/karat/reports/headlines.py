"""What a reader must know before any table: the verdict, and the sentence behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from karat.reports.figures import label, pair_name, several

Tone = Literal["bad", "unsure", "good"]

_TONES: dict[str, Tone] = {
    "fail": "bad",
    "worse": "bad",
    "unmeasurable": "unsure",
    "skipped": "unsure",
    "unclear": "unsure",
    "pass": "good",
    "better": "good",
    "same": "good",
}
_URGENCY = ("bad", "unsure", "good")
# So many cautions are read beside a verdict; the tables mark all of them.
MOST_CAUTIONS = 4


@dataclass(frozen=True, slots=True)
class Headline:
    """A verdict in one word, what it is about, and the sentences that explain it.

    ``pair`` tells the verdict on a comparison from the one on the gates.
    """

    word: str
    about: str
    tone: Tone
    because: tuple[str, ...] = ()
    pair: bool = False


def headlines(results: Mapping[str, Any]) -> list[Headline]:
    """The verdict on the gates and on every comparison, what needs an action first."""
    found = [*_of_gates(results.get("gates", []))]
    for one in results.get("decisions", []):
        found += [_of_decision(one), *_of_fallen(one)]
    return sorted(found, key=lambda one: _URGENCY.index(one.tone))


def unreachable(results: Mapping[str, Any]) -> list[str]:
    """Why no system could pass some gates on this gold; the gold is the same for all systems."""
    gates = [gate for gate in results.get("gates", []) if gate["unreachable"]]
    return list(dict.fromkeys(label(gate["because"]) for gate in gates))


def _of_gates(gates: Sequence[Mapping[str, Any]]) -> list[Headline]:
    """One headline for all gates, if there are any."""
    if not gates:
        return []
    failed = [gate for gate in gates if gate["verdict"] == "fail"]
    unjudged = [gate for gate in gates if gate["verdict"] == "unmeasurable"]
    skipped = [gate for gate in gates if gate["verdict"] == "skipped"]
    verdict = "fail" if failed else "unmeasurable" if unjudged else "skipped" if skipped else "pass"
    told = []
    if failed:
        told.append(f"{_share(failed, gates)} {'fails' if len(failed) == 1 else 'fail'}")
    if unjudged:
        who = f"{len(unjudged)}" if failed else _share(unjudged, gates)
        told.append(f"{who} cannot be judged")
    if skipped:
        who = f"{len(skipped)}" if told else _share(skipped, gates)
        told.append(f"{who} skipped")
    everyone = "the gate passes" if len(gates) == 1 else f"all {len(gates)} gates pass"
    about = ", ".join(told) or everyone
    word = "CANNOT TELL" if verdict == "unmeasurable" else verdict.upper()
    return [Headline(word, about, _TONES[verdict], _reasons(gates, failed + unjudged + skipped))]


def _share(some: Sequence[Any], gates: Sequence[Any]) -> str:
    return "the gate" if len(gates) == 1 else f"{len(some)} of {len(gates)} gates"


def _reasons(
    gates: Sequence[Mapping[str, Any]], stopped: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Why each gate stops the change, apart from those that ``unreachable`` tells."""
    systems = {gate["system"] for gate in gates}
    return tuple(
        (f"{label(gate['system'])}: " if len(systems) > 1 else "") + label(gate["because"])
        for gate in stopped
        if not gate["unreachable"]
    )


def _of_fallen(decision: Mapping[str, Any]) -> list[Headline]:
    """That a measure got worse where none may, though the verdict is of another."""
    stops = [one for one in decision.get("cautions", ()) if one["regression"]]
    if not stops:
        return []
    many = several(len(stops), "measure")
    about = f"{pair_name(decision)}: {many} got worse by more than the margin, where none may"
    return [Headline("FAIL", about, "bad", tuple(label(one["because"]) for one in stops))]


def _of_decision(decision: Mapping[str, Any]) -> Headline:
    verdict = decision["verdict"]
    because = [decision["because"], *caution_lines(decision)]
    if decision.get("bounds"):
        because.append(decision["bounds"])
    told = tuple(map(label, because))
    return Headline(verdict.upper(), pair_name(decision), _TONES[verdict], told, pair=True)


def cautions_beside(decision: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cautions that say more than the verdict; what is worse needs no further warning."""
    return [] if decision["verdict"] == "worse" else list(decision.get("cautions", ()))


def caution_lines(decision: Mapping[str, Any]) -> list[str]:
    """What got worse beside the verdict, the first few of it in full."""
    cautions = [one for one in cautions_beside(decision) if not one["regression"]]
    lines = [f"but {one['because']}" for one in cautions[:MOST_CAUTIONS]]
    more = len(cautions) - MOST_CAUTIONS
    return [*lines, f"and {several(more, 'more caution')}"] if more > 0 else lines
