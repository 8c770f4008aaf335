"""What a reader must know before any table: the verdict, and the sentence behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from karat.reports.figures import label, pair_name

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
    found += [_of_decision(one) for one in results.get("decisions", [])]
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


def _of_decision(decision: Mapping[str, Any]) -> Headline:
    verdict = decision["verdict"]
    because = [decision["because"]]
    if decision.get("bounds"):
        because.append(decision["bounds"])
    told = tuple(map(label, because))
    return Headline(verdict.upper(), pair_name(decision), _TONES[verdict], told, pair=True)
