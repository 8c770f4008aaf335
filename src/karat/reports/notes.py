"""The lines beside a report's tables: counts, conventions, overlap, the price of gates.

Works on the results part of a report's document; the terminal and Markdown both use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from karat.analysis.reversals import told_of
from karat.measures.conventions import ANY_GRADE
from karat.reports.figures import NOTHING, label, pair_name, percent, several
from karat.reports.grids import origin_parts
from karat.reports.origins import differing

# each count in words, for one and for more
_EVENTS = {
    "missing": ("missing from the run", "missing from the run"),
    "failed_calls": ("failed call", "failed calls"),
    "empty_gold": ("without relevant gold", "without relevant gold"),
    "no_answer": ("without an answer", "without an answer"),
    "not_in_gold": ("in the run but not asked", "in the run but not asked"),
    "not_in_queries": (
        "in the gold but not among the queries",
        "in the gold but not among the queries",
    ),
    "repeats": ("repeated hit", "repeated hits"),
    "order_conflicts": ("rank against its score", "ranks against their scores"),
    "versions_unknown": ("unknown version", "unknown versions"),
}
# A measure whose gain is that of the conventions.
_TAKES_GAIN = re.compile(r"(n?DCG|CG|AUC\(of='(n?DCG|CG)'\))(@|$)")
_NO_RESULT = {"missing", "failed_calls"}
_NO_GOLD = {"empty_gold", "no_answer"}
# How chance was handled: these make one phrase of their own.
_RESAMPLING = ("interval", "unit", "ci", "boot", "permutations", "seed")


def counts_lines(results: Mapping[str, Any]) -> list[str]:
    """What happened to the queries and hits: one line, or one a system where they differ."""
    lines = [
        _counts_line(system["counts"], fates_of(results, system))
        + (" · PARTIAL: too many calls failed to judge by" if system.get("partial") else "")
        for system in results["systems"]
    ]
    found = nothing_found_lines(results)
    if len(set(lines)) == 1:
        return [*lines[:1], *found]
    names = (label(system["name"]) for system in results["systems"])
    return [*(f"{name}: {line}" for name, line in zip(names, lines, strict=True)), *found]


def nothing_found_lines(results: Mapping[str, Any]) -> list[str]:
    """Which systems found nothing relevant at all."""
    several_systems = len(results["systems"]) > 1
    return [
        (f"{label(system['name'])}: " if several_systems else "")
        + nothing_found(system["nothing_found"])
        for system in results["systems"]
        if system.get("nothing_found")
    ]


def nothing_found(queries: int) -> str:
    """The sentence on a system that found nothing relevant for any query with gold."""
    whom = "the only query" if queries == 1 else f"any of the {queries:,} queries"
    return f"No relevant item was found for {whom}."


def fates_of(results: Mapping[str, Any], system: Mapping[str, Any]) -> dict[str, str]:
    """What becomes of queries without a result, and of those without gold where they count."""
    own = results["conventions"] | system.get("conventions", {})
    fates = dict.fromkeys(_NO_RESULT, "left out" if own["missing"] == "skip" else "worst value")
    return fates | (dict.fromkeys(_NO_GOLD, "counted as 0") if own["empty_gold"] == "zero" else {})


def _counts_line(counts: Mapping[str, int], fates: Mapping[str, str]) -> str:
    events = [
        f"{counts[name]:,} {words[counts[name] > 1]}"
        + (f" ({fates[name]})" if name in fates else "")
        for name, words in _EVENTS.items()
        if counts.get(name)
    ]
    return " · ".join([f"{counts['scored']:,} of {counts['queries']:,} queries scored", *events])


def lacks_lines(results: Mapping[str, Any]) -> list[str]:
    """Which of the profile's measures could not be computed, and what they needed."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for system in results["systems"]:
        for name, cell in system["measures"].items():
            if "lacks" in cell:
                # What was cut is one system's lists; any other input is that of all.
                whose = system["name"] if name in system.get("beyond_log", ()) else ""
                names = reasons.setdefault((whose, cell["lacks"]), [])
                names += [] if name in names else [name]
    several = len(results["systems"]) > 1
    lines = [
        f"{f'{label(whose)}: ' if whose and several else ''}not measured: {', '.join(names)}"
        f" ({reason})"
        for (whose, reason), names in reasons.items()
    ]
    return lines + _beyond_log_lines(results) + _origin_lines(results)


def _beyond_log_lines(results: Mapping[str, Any]) -> list[str]:
    """Which measures have a value and look deeper than the run goes."""
    lines = []
    for system in results["systems"]:
        measures = system["measures"]
        deeper = [name for name in system.get("beyond_log", []) if "lacks" not in measures[name]]
        if deeper:
            lines.append(
                f"{label(system['name'])} was asked for {system['meta']['k']} hits a query; "
                f"{', '.join(deeper)} would look at more"
            )
    return lines


def _origin_lines(results: Mapping[str, Any]) -> list[str]:
    """Where the runs say that they are of other data or other code."""
    metas = {label(system["name"]): system.get("meta", {}) for system in results["systems"]}
    lines = []
    for key, told in differing(metas).items():
        own = ", ".join(f"{name} {label(value)}" for name, value in told.items())
        fear = "" if key == "code_version" else "; they may not have been asked the same"
        lines.append(f"{key} differs between the runs: {own}{fear}")
    return lines


def conventions_lines(results: Mapping[str, Any]) -> list[str]:
    """The decisions under which the numbers hold, then how chance was handled."""
    conventions = {name: _common(results, name) for name in results["conventions"]}
    chance = {name: conventions.pop(name) for name in _RESAMPLING if name in conventions}
    for idle in _idle_settings(results):
        conventions.pop(idle, None)
    parts = [f"profile {conventions.pop('profile')}"]
    for name, value in conventions.items():
        if name == "rel" and value == ANY_GRADE:
            parts.append("rel above 0")
        elif value:
            parts.append(f"{name} {_setting(value)}")
    return [" · ".join(parts), *([_resampling(chance, results)] if chance else [])]


def origin_lines(inputs: Mapping[str, Any]) -> list[str]:
    """What data and code the numbers are of, where a version of either is known."""
    if inputs.get("dataset_version") is None and inputs.get("code_version") is None:
        return []
    return [" · ".join(f"{name} {told}" for name, told in origin_parts(inputs).items())]


def _common(results: Mapping[str, Any], name: str) -> Any:
    """A convention of all systems, or those of each where they differ."""
    value = results["conventions"][name]
    if value is not None:
        return value
    own = {system.get("conventions", {}).get(name) for system in results["systems"]}
    return " or ".join(sorted(str(one) for one in own if one is not None))


def _idle_settings(results: Mapping[str, Any]) -> list[str]:
    """Settings that no number here depends on, such as the cover of spans."""
    names = list(results["systems"][0].get("measures", ()))
    used = {
        "cover": results["conventions"]["level"] == "span",
        "k": any(name.endswith("@k") for name in names),
        "repeats": any(system.get("counts", {}).get("repeats") for system in results["systems"]),
        "gain": not names or any(_TAKES_GAIN.match(name) for name in names),
        # Numbers that are there were not refused.
        "missing_ids": results["conventions"].get("missing_ids") != "refuse",
    }
    return [name for name, idle in used.items() if not idle]


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " < ".join(map(str, value)) if isinstance(value, list) else str(value)


def _resampling(chance: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    tests = ""
    if "comparisons" in results:
        tests = f" · p from {_number(chance['permutations'])} permutations"
    seed = f"seed {chance['seed']}"
    if chance["interval"] == "none":
        return "no intervals" + (f"{tests}, {seed}" if tests else "")
    drawn = "resamples of groups" if chance["unit"] == "group" else "resamples"
    method = f"{chance['interval']}, {_number(chance['boot'])} {drawn}, {seed}"
    return f"{_share(chance['ci'])} intervals, each by itself ({method}){tests}"


def _share(value: Any) -> str:
    return f"{100 * value:.4g} %" if isinstance(value, float) else str(value)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def rule_line(results: Mapping[str, Any]) -> str:
    """What decided the comparison."""
    rule = results["rule"]
    margin = f"{rule['margin']:g}"
    if rule["margin_kind"] == "relative":
        margin = f"{_share(float(rule['margin']))} of the baseline's mean"
    held = ", held against the difference itself" if rule["margin_on"] == "mean" else ""
    runs = [f"{label(name)}: {several(n, 'run')}" for name, n in results["replicates"].items()]
    note = results.get("primary", {}).get("note")
    all_of = ["no measure may regress"] if rule.get("no_regression") == "all" else []
    decides = "* decides" if note is None else f"* {note}"
    rows = [row for row in results.get("comparisons", []) if row["primary"]]
    if rows and not any(row["n"] for row in rows if row["segment"] is None):
        decides = f"{label(str(rule['primary']))} decides, and is not compared"
    return " · ".join([decides, f"margin {margin}{held}", *all_of, *runs])


def tests_line(results: Mapping[str, Any]) -> str:
    """How the figures beside the differences read."""
    rule = results["rule"]
    how = "over all pairs" if rule["pairs"] == "all" else f"({rule['correction']})"
    return f"p corrected {how} · +/=/− queries better, equal, worse"


def other_reversals(results: Mapping[str, Any]) -> list[str]:
    """The segments that go the other way, without those that are cautions of the verdict."""
    decides = results.get("rule", {}).get("primary")
    return [
        sentence
        for sentence in results.get("reversals", [])
        if not (told_of(sentence)[1] and f" {decides} " in sentence)
    ]


def overlap_lines(results: Mapping[str, Any]) -> list[str]:
    """How alike the lists of the systems are."""
    return [f"{pair_name(one)}: {_alike(one)}" for one in results.get("overlap", [])]


def _alike(overlap: Mapping[str, Any]) -> str:
    if overlap["identical"]:
        return "both return the same lists"
    told = {"Jaccard@10": "of the first 10 shared (Jaccard@10)", "RBO": "RBO", "tau": "tau"}
    share, rbo, tau = (NOTHING if overlap[key] is None else f"{overlap[key]:.2f}" for key in told)
    over = several(overlap["queries"], "query", "queries")
    return f"{share} {told['Jaccard@10']} · RBO {rbo} · tau {tau} over {over}"


def blocking_lines(results: Mapping[str, Any]) -> list[str]:
    """What the gates together cost: how often they would block a system that is good enough."""
    chances = {name: one for name, one in results.get("blocking", {}).items() if one is not None}
    return [
        (f"{label(name)}: " if len(chances) > 1 else "")
        + "chance of blocking a system exactly at every limit"
        + f" {percent(one['at_limits'])}, one as good as this {percent(one['as_measured'])}"
        for name, one in chances.items()
    ]


def left_out_lines(results: Mapping[str, Any]) -> list[str]:
    """What the gate file asks for that karat does not judge."""
    names = results.get("gates_left_out", [])
    return [f"gates not about retrieval, left out: {label(', '.join(names))}"] if names else []
