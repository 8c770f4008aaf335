"""The sentences of a report: verdicts first, then the lines beside its tables.

Everything here reads the results part of a report's document. Tables are in ``tables``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.evaluation.origins import differing
from karat.evaluation.tables import origin_parts
from karat.evaluation.verdict import reversal_facts
from karat.measure.conventions import ANY_GRADE
from karat.pages.formatting import NOTHING, label, pair_name, percent, plural
from karat.pages.page import VERDICT_TONES, Tone

Results = Mapping[str, Any]

# How many cautions stand beside a verdict; the tables mark all of them.
MOST_CAUTIONS = 4

_TONES: dict[str, Tone] = {**VERDICT_TONES, "same": "good"}
_URGENCY = ("bad", "unsure", "good")
# Each count in words, for one and for more.
_COUNTED = {
    "missing": ("missing from the run", "missing from the run"),
    "failed_calls": ("failed call", "failed calls"),
    "empty_gold": ("without relevant gold", "without relevant gold"),
    "no_answer": ("without an answer", "without an answer"),
    "not_in_gold": ("query in the run has no gold", "queries in the run have no gold"),
    "not_in_queries": ("in the gold but not in the queries", "in the gold but not in the queries"),
    "repeats": ("repeated hit", "repeated hits"),
    "order_conflicts": ("rank contradicts its score", "ranks contradict their scores"),
    "versions_unknown": ("unknown version", "unknown versions"),
}
# A measure whose gain is that of the conventions.
_USES_GAIN = re.compile(r"(n?DCG|CG|AUC\(of='(n?DCG|CG)'\))(@|$)")
# Conventions about resampling have a phrase of their own.
_RESAMPLING = ("interval", "unit", "ci", "boot", "permutations", "seed")


@dataclass(frozen=True, slots=True)
class Headline:
    """A verdict in one word, what it is about, and the sentences that explain it.

    ``pair`` is true for the verdict on a comparison, false for the one on the gates.
    """

    word: str
    about: str
    tone: Tone
    because: tuple[str, ...] = ()
    pair: bool = False


def headlines(results: Results) -> list[Headline]:
    """Return the verdict on the gates and on every comparison, the most urgent first."""
    verdicts = _gates_headline(results.get("gates", []))
    for decision in results.get("decisions", []):
        verdicts += [_decision_headline(decision), *_regression_headline(decision)]
    return sorted(verdicts, key=lambda headline: _URGENCY.index(headline.tone))


def unreachable(results: Results) -> list[str]:
    """Return why no system could pass some gates on this gold."""
    gates = [gate for gate in results.get("gates", []) if gate["unreachable"]]
    return list(dict.fromkeys(label(gate["because"]) for gate in gates))


def cautions_beside(decision: Results) -> list[Mapping[str, Any]]:
    """Return the cautions that add something to the verdict; "worse" needs no further warning."""
    return [] if decision["verdict"] == "worse" else list(decision.get("cautions", ()))


def caution_lines(decision: Results) -> list[str]:
    """Return what got worse beside the verdict, the first few cautions in full."""
    cautions = [caution for caution in cautions_beside(decision) if not caution["regression"]]
    lines = [f"but {caution['because']}" for caution in cautions[:MOST_CAUTIONS]]
    more = len(cautions) - MOST_CAUTIONS
    return [*lines, f"and {plural(more, 'more caution')}"] if more > 0 else lines


def _gates_headline(gates: Sequence[Mapping[str, Any]]) -> list[Headline]:
    """Return one headline for all gates, if there are any."""
    if not gates:
        return []
    by_verdict = {
        verdict: [gate for gate in gates if gate["verdict"] == verdict]
        for verdict in ("fail", "unmeasurable", "skipped")
    }
    stopped = [gate for group in by_verdict.values() for gate in group]
    verdict = next((word for word, group in by_verdict.items() if group), "pass")
    parts: list[str] = []
    for word, group in by_verdict.items():
        if group:
            who = f"{len(group)} of {len(gates)} gates" if len(gates) > 1 else "the gate"
            who = f"{len(group)}" if parts else who
            does = {"fail": "fails" if len(group) == 1 else "fail", "skipped": "skipped"}
            parts.append(f"{who} {does.get(word, 'cannot be judged')}")
    passed = "the gate passes" if len(gates) == 1 else f"all {len(gates)} gates pass"
    systems = {gate["system"] for gate in gates}
    # The unreachable gates have sentences of their own.
    reasons = tuple(
        (f"{label(gate['system'])}: " if len(systems) > 1 else "") + label(gate["because"])
        for gate in stopped
        if not gate["unreachable"]
    )
    word = "CANNOT TELL" if verdict == "unmeasurable" else verdict.upper()
    return [Headline(word, ", ".join(parts) or passed, _TONES[verdict], reasons)]


def _decision_headline(decision: Results) -> Headline:
    verdict = decision["verdict"]
    because = [decision["because"], *caution_lines(decision)]
    if decision.get("bounds"):
        because.append(decision["bounds"])
    reasons = tuple(map(label, because))
    return Headline(verdict.upper(), pair_name(decision), _TONES[verdict], reasons, pair=True)


def _regression_headline(decision: Results) -> list[Headline]:
    """Return that another measure regressed, where the rule allows no regression."""
    stops = [caution for caution in decision.get("cautions", ()) if caution["regression"]]
    if not stops:
        return []
    measures = plural(len(stops), "measure")
    about = f"{pair_name(decision)}: {measures} got worse by more than the margin allows"
    return [Headline("FAIL", about, "bad", tuple(label(stop["because"]) for stop in stops))]


def counts_lines(results: Results) -> list[str]:
    """Return what happened to the queries: one line, or one per system where they differ."""
    lines = []
    for system in results["systems"]:
        counts, fates = system["counts"], fates_of(results, system)
        events = [
            f"{counts[name]:,} {words[counts[name] > 1]}"
            + (f" ({fates[name]})" if name in fates else "")
            for name, words in _COUNTED.items()
            if counts.get(name)
        ]
        partial = ["PARTIAL: too many calls failed"] if system.get("partial") else []
        scored = f"{counts['scored']:,} of {counts['queries']:,} queries scored"
        lines.append(" · ".join([scored, *events, *partial]))
    nothing = nothing_found_lines(results)
    if len(set(lines)) == 1:
        return [lines[0], *nothing]
    names = (label(system["name"]) for system in results["systems"])
    return [*(f"{name}: {line}" for name, line in zip(names, lines, strict=True)), *nothing]


def nothing_found_lines(results: Results) -> list[str]:
    """Return a sentence for each system that found nothing relevant."""
    named = len(results["systems"]) > 1
    return [
        (f"{label(system['name'])}: " if named else "") + nothing_found(system["nothing_found"])
        for system in results["systems"]
        if system.get("nothing_found")
    ]


def nothing_found(queries: int) -> str:
    """Return the sentence on a system that found nothing relevant for any query with gold."""
    which = "the only query" if queries == 1 else f"any of the {queries:,} queries"
    return f"No relevant item was found for {which}."


def fates_of(results: Results, system: Results) -> dict[str, str]:
    """Return how queries without a result count, and those without gold where they count."""
    own = results["conventions"] | system.get("conventions", {})
    no_result = "left out" if own["missing"] == "skip" else "worst value"
    fates = dict.fromkeys(("missing", "failed_calls"), no_result)
    if own["empty_gold"] == "zero":
        fates |= dict.fromkeys(("empty_gold", "no_answer"), "counted as 0")
    return fates


def lacks_lines(results: Results) -> list[str]:
    """Return which measures could not be computed and why, and where runs do not match."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for system in results["systems"]:
        for name, cell in system["measures"].items():
            if "lacks" in cell:
                # Short lists are one system's; any other missing input is shared by all.
                whose = system["name"] if name in system.get("beyond_log", ()) else ""
                names = reasons.setdefault((whose, cell["lacks"]), [])
                names += [] if name in names else [name]
    named = len(results["systems"]) > 1
    lines = [
        f"{f'{label(whose)}: ' if whose and named else ''}not measured: {', '.join(names)}"
        f" ({reason})"
        for (whose, reason), names in reasons.items()
    ]
    for system in results["systems"]:
        measures = system["measures"]
        deeper = [name for name in system.get("beyond_log", []) if "lacks" not in measures[name]]
        if deeper:
            lines.append(
                f"{label(system['name'])} was asked for {system['meta']['k']} hits per query; "
                f"{', '.join(deeper)} would look at more"
            )
    metas = {label(system["name"]): system.get("meta", {}) for system in results["systems"]}
    for key, versions in differing(metas).items():
        values = ", ".join(f"{name} {label(value)}" for name, value in versions.items())
        doubt = "" if key == "code_version" else "; they may not have been asked the same queries"
        lines.append(f"{key} differs between the runs: {values}{doubt}")
    return lines


def conventions_lines(results: Results) -> list[str]:
    """Return the conventions that the numbers depend on, then how they were resampled."""
    conventions = {name: _convention(results, name) for name in results["conventions"]}
    resampling = {name: conventions.pop(name) for name in _RESAMPLING if name in conventions}
    for name in _unused_conventions(results):
        conventions.pop(name, None)
    parts = [f"profile {conventions.pop('profile')}"]
    for name, value in conventions.items():
        if name == "rel" and value == ANY_GRADE:
            parts.append("rel above 0")
        elif isinstance(value, list) and value:
            parts.append(f"{name} {' < '.join(map(str, value))}")
        elif value:
            parts.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    return [" · ".join(parts), *([_resampling_line(resampling, results)] if resampling else [])]


def origin_lines(inputs: Results) -> list[str]:
    """Return the version of the data and of the code, where one of them is known."""
    if inputs.get("dataset_version") is None and inputs.get("code_version") is None:
        return []
    return [" · ".join(f"{name} {value}" for name, value in origin_parts(inputs).items())]


def _convention(results: Results, name: str) -> Any:
    """Return the convention of all systems, or those of each where they differ."""
    value = results["conventions"][name]
    if value is not None:
        return value
    values = {system.get("conventions", {}).get(name) for system in results["systems"]}
    return " or ".join(sorted(str(value) for value in values if value is not None))


def _unused_conventions(results: Results) -> list[str]:
    """Return the settings that no number here depends on, such as the cover of spans."""
    names = list(results["systems"][0].get("measures", ()))
    used = {
        "cover": results["conventions"]["level"] == "span",
        "k": any(name.endswith("@k") for name in names),
        "repeats": any(system.get("counts", {}).get("repeats") for system in results["systems"]),
        "gain": not names or any(_USES_GAIN.match(name) for name in names),
        # With "refuse", the numbers would not be there.
        "missing_ids": results["conventions"].get("missing_ids") != "refuse",
    }
    return [name for name, is_used in used.items() if not is_used]


def _resampling_line(chance: Mapping[str, Any], results: Results) -> str:
    tests = ""
    if "comparisons" in results:
        tests = f" · p from {_count(chance['permutations'])} permutations"
    seed = f"seed {chance['seed']}"
    if chance["interval"] == "none":
        return "no intervals" + (f"{tests}, {seed}" if tests else "")
    resamples = "resamples of groups" if chance["unit"] == "group" else "resamples"
    method = f"{chance['interval']}, {_count(chance['boot'])} {resamples}, {seed}"
    level = f"{100 * chance['ci']:.4g} %" if isinstance(chance["ci"], float) else chance["ci"]
    return f"{level} intervals, not corrected for their number ({method}){tests}"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def rule_line(results: Results) -> str:
    """Return what decided the comparison."""
    rule = results["rule"]
    margin = f"{rule['margin']:g}"
    if rule["margin_kind"] == "relative":
        margin = f"{100 * rule['margin']:.4g} % of the baseline's mean"
    on_mean = ", compared with the difference itself" if rule["margin_on"] == "mean" else ""
    runs = [f"{label(name)}: {plural(n, 'run')}" for name, n in results["replicates"].items()]
    note = results.get("primary", {}).get("note")
    no_regression = ["no measure may regress"] if rule.get("no_regression") == "all" else []
    decides = "* decides" if note is None else f"* {note}"
    rows = [row for row in results.get("comparisons", []) if row["primary"]]
    if rows and not any(row["n"] for row in rows if row["segment"] is None):
        decides = f"{label(str(rule['primary']))} decides, but could not be compared"
    return " · ".join([decides, f"margin {margin}{on_mean}", *no_regression, *runs])


def tests_line(results: Results) -> str:
    """Return how to read the figures beside the differences."""
    rule = results["rule"]
    how = "over all pairs" if rule["pairs"] == "all" else f"({rule['correction']})"
    return f"p corrected {how} · +/=/− queries better, equal, worse"


def other_reversals(results: Results) -> list[str]:
    """Return the segments that go the other way and are not cautions of the verdict already."""
    decides = results.get("rule", {}).get("primary")
    return [
        sentence
        for sentence in results.get("reversals", [])
        if not (reversal_facts(sentence)[1] and f" {decides} " in sentence)
    ]


def overlap_lines(results: Results) -> list[str]:
    """Return how alike the lists of the systems are."""
    lines = []
    for overlap in results.get("overlap", []):
        if overlap["identical"]:
            lines.append(f"{pair_name(overlap)}: both return the same lists")
            continue
        jaccard, rbo, tau = (
            NOTHING if overlap[key] is None else f"{overlap[key]:.2f}"
            for key in ("Jaccard@10", "RBO", "tau")
        )
        queries = plural(overlap["queries"], "query", "queries")
        alike = f"{jaccard} of the first 10 shared (Jaccard@10) · RBO {rbo} · tau {tau}"
        lines.append(f"{pair_name(overlap)}: {alike} over {queries}")
    return lines


def blocking_lines(results: Results) -> list[str]:
    """Return how often the gates together would block a system that is good enough."""
    chances = {
        name: chance for name, chance in results.get("blocking", {}).items() if chance is not None
    }
    return [
        (f"{label(name)}: these" if len(chances) > 1 else "These")
        + f" gates would block a system exactly at every limit {percent(chance['at_limits'])} of"
        + f" the time, and one as good as this {percent(chance['as_measured'])}."
        for name, chance in chances.items()
    ]


def left_out_lines(results: Results) -> list[str]:
    """Return which gates of the file are not about retrieval."""
    names = results.get("gates_left_out", [])
    return [f"gates not about retrieval, left out: {label(', '.join(names))}"] if names else []
