"""The lines beside a report's tables: counts, conventions, overlap, the price of gates.

Works on the results part of a report's document; the terminal and Markdown both use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    "duplicates_dropped": ("duplicate hit dropped", "duplicate hits dropped"),
    "order_conflicts": ("rank against its score", "ranks against their scores"),
    "versions_unknown": ("unknown version", "unknown versions"),
}
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
    if len(set(lines)) == 1:
        return lines[:1]
    names = (label(system["name"]) for system in results["systems"])
    return [f"{name}: {line}" for name, line in zip(names, lines, strict=True)]


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
    reasons: dict[str, list[str]] = {}
    for system in results["systems"]:
        for name, cell in system["measures"].items():
            if "lacks" in cell and name not in reasons.setdefault(cell["lacks"], []):
                reasons[cell["lacks"]].append(name)
    lines = [f"not measured: {', '.join(names)} ({reason})" for reason, names in reasons.items()]
    return lines + _beyond_log_lines(results) + _origin_lines(results)


def _beyond_log_lines(results: Mapping[str, Any]) -> list[str]:
    """Which measures look deeper than the run goes; what lies there counts as not found."""
    return [
        f"{label(system['name'])} was asked for {system['meta']['k']} hits a query; "
        f"{', '.join(system['beyond_log'])} would look at more"
        for system in results["systems"]
        if system.get("beyond_log")
    ]


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
    """Settings that have no part in these numbers: spans' cover, the k of measures without one."""
    own_k = any(name.endswith("@k") for name in results["systems"][0].get("measures", ()))
    spans = results["conventions"]["level"] == "span"
    return [*([] if spans else ["cover"]), *([] if own_k else ["k"])]


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
    return " · ".join([f"* decides · margin {margin}{held}", *runs])


def tests_line(results: Mapping[str, Any]) -> str:
    """How the figures beside the differences read."""
    rule = results["rule"]
    how = "over all pairs" if rule["pairs"] == "all" else f"({rule['correction']})"
    return f"p corrected {how} · +/=/− queries better, equal, worse"


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
