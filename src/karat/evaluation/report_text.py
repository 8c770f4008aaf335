"""Text of results: verdicts, sentences and tables, independent of the output form.

Everything here reads the results part of a report's document. A table is a grid of cells whose
first row is the header; a tab in a cell separates parts that line up in a column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.data.columns import date_range
from karat.data.tables import Queries
from karat.evaluation.segments import CROSS, SMALL
from karat.evaluation.verdict import BEYOND_CHANCE
from karat.measure.conventions import ANY_GRADE
from karat.pages.formatting import (
    NOTHING,
    PART,
    change,
    figure,
    gate_mean,
    gate_name,
    interval,
    label,
    measured,
    number_range,
    p_value,
    pair_name,
    percent,
    plural,
    verdict_words,
)
from karat.pages.page import VERDICT_TONES, Grid, Section, Sentence, Tone

Results = Mapping[str, Any]
Row = Mapping[str, Any]

# The most cautions beside a verdict; the tables mark all of them.
MOST_CAUTIONS = 4

_TONES: dict[str, Tone] = {**VERDICT_TONES, "same": "good"}
_URGENCY = ("bad", "unsure", "good")
# Words for gates that do not pass, one and several; the most serious first.
_STOPS = {
    "fail": ("fails", "fail"),
    "unmeasurable": ("cannot be judged", "cannot be judged"),
    "skipped": ("skipped", "skipped"),
}
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
# Keys of a log that say what a system is made of.
_ARTIFACTS = ("index_version", "chunker", "embedding_model", "reranker_model")
# Digits of a digest that are shown.
_DIGEST = 12
# Facts that a log states about the data and the code, with their names in tables.
_ORIGIN = {
    "dataset_version": "dataset version",
    "as_of_range": "as_of range",
    "code_version": "code version",
}
# A longer name goes into the title, since it would widen the column.
_LONGEST_HEAD = 12
# Columns of a comparison in a pull request, on a terminal, and in full.
COMPARED_SHORT = ("baseline", "system", "Δ", "verdict")
COMPARED = ("baseline", "system", "Δ", "p", "n", "+/=/−", "verdict")
COMPARED_FULL = (*COMPARED[:-1], "detects", "verdict")


@dataclass(frozen=True, slots=True)
class Headline:
    """A verdict in one word, its subject, and the sentences that explain it.

    ``pair`` is true for the verdict on a comparison, false for the one on the gates.
    """

    word: str
    about: str
    tone: Tone
    because: tuple[str, ...] = ()
    pair: bool = False


def headlines(results: Results) -> list[Headline]:
    """Return the verdict on the gates and on every comparison, the most urgent first."""
    verdicts = [_gates_headline(results["gates"])] if results.get("gates") else []
    for decision in results.get("decisions", []):
        pair, word = pair_name(decision), decision["verdict"]
        reasons = [decision["because"]]
        cautions = [row for row in cautions_beside(decision) if not row["regression"]]
        reasons += [f"but {caution['because']}" for caution in cautions[:MOST_CAUTIONS]]
        if (more := len(cautions) - MOST_CAUTIONS) > 0:
            reasons.append(f"and {plural(more, 'more caution')}")
        reasons += [decision["bounds"]] if decision.get("bounds") else []
        because = tuple(map(label, reasons))
        verdicts.append(Headline(word.upper(), pair, _TONES[word], because, pair=True))
        stops = [caution for caution in decision.get("cautions", ()) if caution["regression"]]
        if stops:
            about = f"{pair}: {plural(len(stops), 'measure')} got worse by more than allowed"
            because = tuple(label(caution["because"]) for caution in stops)
            verdicts.append(Headline("FAIL", about, "bad", because))
    return sorted(verdicts, key=lambda headline: _URGENCY.index(headline.tone))


def verdict_sentences(results: Results) -> list[Sentence]:
    """Return the headline of a page: gates out of reach, then every verdict with its reasons."""
    sentences = [Sentence(f"OUT OF REACH  {line}", "bad") for line in unreachable(results)]
    several_pairs = len(results.get("decisions", [])) > 1
    for headline in headlines(results):
        about, reasons = headline.about, headline.because
        if headline.pair:
            about = f"{about}: {reasons[0]}" if several_pairs else reasons[0]
            reasons = reasons[1:]
        sentences.append(Sentence(f"{headline.word}  {about}", headline.tone, reasons))
    return sentences


def decided_sections(results: Results) -> Iterator[Section]:
    """Yield the gates and the comparisons over all queries."""
    if results.get("gates") or results.get("gates_left_out"):
        grid = gate_table(results) if results["gates"] else None
        yield Section("", grid, gate_lines(results))
    compared = comparison_tables(results) if "comparisons" in results else {}
    yield from (Section(title, grid) for title, grid in compared.items())
    if compared:
        yield Section(lines=[f"{rule_line(results)} · {tests_line(results)}"])


def _gates_headline(gates: Sequence[Row]) -> Headline:
    """Return one verdict for all gates, with a reason for each that does not pass."""
    counts = Counter(gate["verdict"] for gate in gates)
    stops = [word for word in _STOPS if counts[word]]
    single = len(gates) == 1
    about = "the gate passes" if single else f"all {len(gates)} gates pass"
    if stops:
        parts = [f"{counts[word]} {_STOPS[word][counts[word] > 1]}" for word in stops]
        number, _, words = parts[0].partition(" ")
        who = "the gate" if single else f"{number} of {len(gates)} gates"
        about = ", ".join([f"{who} {words}", *parts[1:]])
    several = len({gate["system"] for gate in gates}) > 1
    # The unreachable gates have sentences of their own.
    because = tuple(
        (f"{label(gate['system'])}: " if several else "") + label(gate["because"])
        for verdict in stops
        for gate in gates
        if gate["verdict"] == verdict and not gate["unreachable"]
    )
    verdict = stops[0] if stops else "pass"
    word = "CANNOT TELL" if verdict == "unmeasurable" else verdict.upper()
    return Headline(word, about, _TONES[verdict], because)


def unreachable(results: Results) -> list[str]:
    """Return why no system could pass some gates on this gold."""
    gates = [gate for gate in results.get("gates", []) if gate["unreachable"]]
    return list(dict.fromkeys(label(gate["because"]) for gate in gates))


def cautions_beside(decision: Results) -> list[Row]:
    """Return the cautions that add something to the verdict; "worse" needs no further warning."""
    return [] if decision["verdict"] == "worse" else list(decision.get("cautions", ()))


def counts_lines(results: Results) -> list[str]:
    """Return the counts of queries: one line, or one per system where they differ."""
    lines = {}
    for system in results["systems"]:
        counts = system["counts"]
        events = [f"{counts['scored']:,} of {counts['queries']:,} queries scored"]
        for name, words in _COUNTED.items():
            if counts.get(name):
                fate = fates_of(results, system).get(name)
                event = f"{counts[name]:,} {words[counts[name] > 1]}"
                events.append(event if fate is None else f"{event} ({fate})")
        events += ["PARTIAL: too many calls failed"] if system.get("partial") else []
        if system.get("nothing_found"):
            events.append(nothing_found(system["nothing_found"]))
        lines[label(system["name"])] = " · ".join(events)
    if len(set(lines.values())) == 1:
        return [next(iter(lines.values()))]
    return [f"{name}: {line}" for name, line in lines.items()]


def nothing_found(queries: int) -> str:
    """Return a sentence for a system that found nothing relevant for any query with gold."""
    which = "the only query" if queries == 1 else f"any of the {queries:,} queries"
    return f"No relevant item was found for {which}."


def fates_of(results: Results, system: Results) -> dict[str, str]:
    """Return how queries without a result count, and those without gold where they count."""
    conventions = results["conventions"] | system.get("conventions", {})
    no_result = "left out" if conventions["missing"] == "skip" else "worst value"
    fates = dict.fromkeys(("missing", "failed_calls"), no_result)
    if conventions["empty_gold"] == "zero":
        fates |= dict.fromkeys(("empty_gold", "no_answer"), "counted as 0")
    return fates


def lacks_lines(results: Results) -> list[str]:
    """Return measures without a value, with reasons, and differences between runs."""
    systems = results["systems"]
    named = len(systems) > 1
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    deeper: list[str] = []
    for system in systems:
        name, beyond = label(system["name"]), system.get("beyond_log", ())
        for measure, cell in system["measures"].items():
            if "lacks" in cell:
                # Short lists are one system's; any other missing input is shared by all.
                whose = f"{name}: " if named and measure in beyond else ""
                reasons.setdefault((whose, cell["lacks"]), {})[measure] = None
        if reaching := [m for m in beyond if "lacks" not in system["measures"][m]]:
            deeper.append(
                f"{name} was asked for {system['meta']['k']} hits per query; "
                f"{', '.join(reaching)} would look at more"
            )
    lines = [
        f"{whose}not measured: {', '.join(names)} ({why})"
        for (whose, why), names in reasons.items()
    ]
    lines += deeper
    for key in _ORIGIN if named else ():
        facts = {label(s["name"]): s.get("meta", {}).get(key) for s in systems}
        known = {name: _spelled_fact(fact) for name, fact in facts.items() if fact is not None}
        if len(set(known.values())) > 1:
            versions = ", ".join(f"{name} {fact}" for name, fact in known.items())
            doubt = "" if key == "code_version" else "; their queries may differ"
            lines.append(f"{key} differs between the runs: {versions}{doubt}")
    return lines


def conventions_lines(results: Results) -> list[str]:
    """Return the conventions that the numbers depend on, then how they were resampled."""
    systems = results["systems"]
    conventions = dict(results["conventions"])
    for name in [name for name, value in conventions.items() if value is None]:
        # Systems differ.
        values = {system.get("conventions", {}).get(name) for system in systems} - {None}
        conventions[name] = " or ".join(sorted(map(str, values)))
    measures = list(systems[0].get("measures", ()))
    # Settings that no number here depends on, such as the cover of spans, are left out.
    used = {
        "cover": conventions["level"] == "span",
        "k": any(name.endswith("@k") for name in measures),
        "repeats": any(system.get("counts", {}).get("repeats") for system in systems),
        "gain": not measures or any(_USES_GAIN.match(name) for name in measures),
        # With "refuse", the numbers would not be there.
        "missing_ids": conventions.get("missing_ids") != "refuse",
    }
    parts = []
    for name, value in conventions.items():
        if name in _RESAMPLING or not value or not used.get(name, True):
            continue
        if isinstance(value, list):
            parts.append(f"{name} {' < '.join(map(str, value))}")
        elif name == "rel" and value == ANY_GRADE:
            parts.append("rel above 0")
        else:
            parts.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    parts.sort(key=lambda part: not part.startswith("profile "))
    lines = [" · ".join(parts)]
    if "interval" not in conventions:
        return lines
    # A setting in which systems differ is text already.
    shown = {k: f"{v:,}" if k != "seed" and type(v) is int else v for k, v in conventions.items()}
    tests = f" · p from {shown['permutations']} permutations" if "comparisons" in results else ""
    seed = f"seed {shown['seed']}"
    if shown["interval"] == "none":
        return [*lines, "no intervals" + (f"{tests}, {seed}" if tests else "")]
    resamples = "resamples of groups" if shown["unit"] == "group" else "resamples"
    method = f"{shown['interval']}, {shown['boot']} {resamples}, {seed}"
    level = f"{100 * shown['ci']:.4g} %" if isinstance(shown["ci"], float) else shown["ci"]
    return [*lines, f"{level} intervals, not corrected for their number ({method}){tests}"]


def rule_line(results: Results) -> str:
    """Return the rule of the comparison."""
    rule = results["rule"]
    margin = f"margin {rule['margin']:g}"
    if rule["margin_kind"] == "relative":
        margin = f"margin {100 * rule['margin']:.4g} % of the baseline's mean"
    if rule["margin_on"] == "mean":
        margin += ", compared with the difference itself"
    decides = f"* {results.get('primary', {}).get('note') or 'decides'}"
    rows = [row for row in results.get("comparisons", []) if row["primary"] and not row["segment"]]
    if rows and not any(row["n"] for row in rows):
        decides = f"{label(str(rule['primary']))} decides, but could not be compared"
    no_regression = ["no measure may regress"] if rule.get("no_regression") == "all" else []
    runs = [f"{label(name)}: {plural(n, 'run')}" for name, n in results["replicates"].items()]
    return " · ".join([decides, margin, *no_regression, *runs])


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
        if not (f" {decides} " in sentence and sentence.endswith(BEYOND_CHANCE))
    ]


def overlap_lines(results: Results) -> list[str]:
    """Return the overlap of the systems' lists."""
    lines = []
    for overlap in results.get("overlap", []):
        jaccard, rbo, tau = (
            NOTHING if overlap[key] is None else f"{overlap[key]:.2f}"
            for key in ("Jaccard@10", "RBO", "tau")
        )
        queries = plural(overlap["queries"], "query", "queries")
        alike = f"{jaccard} of the first 10 shared (Jaccard@10) · RBO {rbo} · tau {tau}"
        alike = "both return the same lists" if overlap["identical"] else f"{alike} over {queries}"
        lines.append(f"{pair_name(overlap)}: {alike}")
    return lines


def gate_lines(results: Results) -> list[str]:
    """Return how often the gates block a good system, and which are not about retrieval."""
    chances = [(name, odds) for name, odds in results.get("blocking", {}).items() if odds]
    lines = [
        (f"{label(name)}: these" if len(chances) > 1 else "These")
        + f" gates would block a system exactly at every limit {percent(odds['at_limits'])} of"
        + f" the time, and one as good as this {percent(odds['as_measured'])}."
        for name, odds in chances
    ]
    if results.get("gates_left_out"):
        names = label(", ".join(results["gates_left_out"]))
        lines.append(f"gates not about retrieval, left out: {names}")
    return lines


def origin_of(metas: Sequence[Mapping[str, Any]], queries: Queries | None) -> dict[str, Any]:
    """Return dataset version, code version and as_of range, where known and shared by all runs.

    The queries themselves know their dates better than a log does.
    """
    origin: dict[str, Any] = {}
    for key in _ORIGIN:
        facts = [meta.get(key) for meta in metas]
        if facts and facts[0] is not None and facts.count(facts[0]) == len(facts):
            origin[key] = facts[0] if key == "as_of_range" else str(facts[0])
    has_dates = queries is not None and "as_of" in queries.frame.columns
    if queries is not None and has_dates and (dates := date_range(queries.frame["as_of"])):
        origin["as_of_range"] = list(dates)
    return origin


def origin_line(origin: Results) -> str:
    """Return the versions of data and code that are known."""
    return " · ".join(f"{name} {value}" for name, value in _origin_parts(origin).items())


def _origin_parts(inputs: Results) -> dict[str, str]:
    facts = {name: inputs.get(key) for key, name in _ORIGIN.items()}
    return {name: _spelled_fact(fact) for name, fact in facts.items() if fact is not None}


def _spelled_fact(fact: Any) -> str:
    return label(" to ".join(fact) if isinstance(fact, list | tuple) else str(fact))


# Tables.


def measure_table(results: Results, spreads: Mapping[str, str] | None = None) -> Grid:
    """Return measures as rows, systems as columns; other columns only where they add something.

    One system alone has room for the quartiles of its queries, and for how they spread, drawn,
    where ``spreads`` has that; ``distribution_table`` has all.
    """
    drawn = spreads or {}
    systems = results["systems"]
    measures = [system["measures"] for system in systems]
    most = max((cell["n"] for cells in measures for cell in cells.values()), default=0)
    names = [label(system["name"]) for system in systems]
    grid = [["measure", *names, "quartiles", "spread", "n", "ceiling"]]
    for name in measures[0]:
        cells = [cells[name] for cells in measures]
        ns = [cell["n"] for cell in cells]
        n = "" if set(ns) == {most} else number_range(str(min(ns)), str(max(ns)))
        quantiles = cells[0].get("quantiles") if len(cells) == 1 else None
        quartiles = " · ".join(map(figure, quantiles[1:4])) if quantiles else ""
        spread = drawn.get(name, "") if quartiles else ""
        # The best reachable value, if it is below 1.
        ceilings = [cell["ceiling"] for cell in cells if cell["better"] == "higher"]
        below = [ceiling for ceiling in ceilings if ceiling not in (None, 1.0)]
        ceiling = number_range(figure(min(below)), figure(max(below))) if below else ""
        grid.append([name, *map(measured, cells), quartiles, spread, n, ceiling])
        # The range of the mean over tie orders, if it is wide enough to see.
        ends = [[figure(end) for end in cell.get("ties", (None, None))] for cell in cells]
        if any(low != high for low, high in ends):
            ties = ["" if low == high else number_range(low, high) for low, high in ends]
            grid.append(["  by tie order", *ties, "", "", "", ""])
    return _without(grid, ("quartiles", "spread", "n", "ceiling"))


def distribution_table(results: Results) -> Grid:
    """Return how values spread over the queries: the ends, the quartiles and the median."""
    grid = [["measure", "system", "lowest", "25 %", "median", "75 %", "highest"]]
    for name in results["systems"][0]["measures"]:
        for system in results["systems"]:
            if spread := system["measures"][name].get("quantiles"):
                grid.append([name, label(system["name"]), *map(figure, spread)])
    return grid


def segment_table(segments: Mapping[str, Mapping[str, Any]], column: str) -> Grid:
    """Return the values of one segment column as rows, measures as columns; marks small ones."""
    measures = list(next(iter(segments.values()), {}))
    grid = [[label(column), "n", *measures]]
    for value, cells in segments.items():
        filled_cells = [cell for cell in cells.values() if cell["n"]]
        ns = [cell["n"] for cell in filled_cells] or [0]
        small = any(cell.get("small") for cell in filled_cells or cells.values())
        n = number_range(str(min(ns)), str(max(ns))) + (" small" if small else "")
        grid.append([label(value), n, *(measured(cells[name]) for name in measures)])
    return grid


def gate_table(results: Results) -> Grid:
    """Return gates as rows, below the name of their system if there are several."""
    grid = [["gate", "verdict", "mean", "n", "needed"]]
    groups: dict[str, list[Row]] = {}
    for gate in results["gates"]:
        groups.setdefault(label(gate["system"]), []).append(gate)
    several = len(groups) > 1
    for system, gates in groups.items():
        grid += [[system, *[""] * 4]] if several else []
        for gate in gates:
            title = ("  " if several else "") + gate_name(gate)
            cells = [gate["verdict"], gate_mean(gate), str(gate["n"]), figure(gate["needed"])]
            grid.append([title, *cells])
    return grid


def comparison_tables(results: Results, columns: Sequence[str] = COMPARED) -> dict[str, Grid]:
    """Return a titled table per pair, measures as rows; the deciding one is first and starred."""
    rows = [row for row in results["comparisons"] if row["segment"] is None and row["n"]]
    rows.sort(key=lambda row: not row["primary"])
    grids: dict[str, Grid] = {}
    for row in rows:
        name = f"{row['measure']} *" if row["primary"] else row["measure"]
        _add_compared(grids, pair_name(row), row, "measure", name, columns)
    if len({row["n"] for row in rows}) > 1:
        return grids
    return {title: _without(grid, ("n",), filled=True) for title, grid in grids.items()}


def compared_segments(results: Results) -> dict[str, Grid]:
    """Return a titled table per pair and segment column, for the deciding measure."""
    grids: dict[str, Grid] = {}
    columns = ("n", "baseline", "system", "Δ", "p", "verdict")
    for row in results["comparisons"]:
        if row["segment"] and row["primary"]:
            column = label(CROSS.join(row["segment"]))
            value = label(CROSS.join(row["segment"].values()))
            title = f"{row['measure']} by {column}, {pair_name(row)}"
            _add_compared(grids, title, row, column, value, columns)
    return grids


def _add_compared(
    grids: dict[str, Grid], title: str, row: Row, head: str, name: str, columns: Sequence[str]
) -> None:
    """Add one comparison to the table of this title, headed by the systems' names if short."""
    systems = {key: label(row[key]) for key in ("baseline", "system")}
    if max(map(len, systems.values())) > _LONGEST_HEAD:
        systems = {}
    small = " small" if row["segment"] and row["n"] < SMALL else ""
    cells = {
        "baseline": figure(row["baseline_mean"]),
        "system": figure(row["system_mean"]),
        "Δ": f"{change(row['delta'])}{PART}{interval(row['ci'])}",
        "p": p_value(row["p_adjusted"]),
        "n": f"{row['n']}{small}",
        "+/=/−": f"{row['wins']}/{row['ties']}/{row['losses']}",
        "detects": figure(row["detectable"]),
        "verdict": verdict_words(row, p="p" not in columns),
    }
    grid = grids.setdefault(title, [[head, *(systems.get(name, name) for name in columns)]])
    grid.append([name, *(cells[column] for column in columns)])


def moved_tables(results: Results) -> dict[str, Grid]:
    """Return a titled table per pair of the queries that moved most; the text comes last."""
    grids: dict[str, Grid] = {}
    for query in results.get("moved", []):
        head = ["query", query["measure"], "change", "text"]
        grid = grids.setdefault(pair_name(query), [head])
        values = f"{figure(query['baseline_value'])}{PART}→ {figure(query['system_value'])}"
        grid.append([label(query["query_id"]), values, query["change"], label(query["text"] or "")])
    return {title: _without(grid, ("text",)) for title, grid in grids.items()}


def input_table(inputs: Results) -> Grid:
    """Return every input with its digest, then the versions of data and code."""
    rows = [["input", "file", "sha256"]]
    for kind in ("gold", "queries", "corpus"):
        if inputs[kind] is not None:
            rows.append([kind, label(inputs[kind]["name"]), inputs[kind]["sha256"] or ""])
    rows += [["run", label(run["name"]), run["sha256"] or ""] for run in inputs["runs"]]
    return rows + [[name, value, ""] for name, value in _origin_parts(inputs).items()]


def artifact_table(results: Results) -> Grid:
    """Return what each system is made of, as its log says; no rows if no log says it."""
    grid = [["system", *(name.replace("_", " ") for name in _ARTIFACTS)]]
    for system in results["systems"]:
        meta = system.get("meta", {})
        grid.append([label(system["name"]), *(label(_spelled(meta.get(n))) for n in _ARTIFACTS)])
    filled = _without(grid, grid[0][1:])
    return filled if len(filled[0]) > 1 else []


def _spelled(value: Any) -> str:
    """Return a setting in words: a name first, digests shortened.

    >>> _spelled({"algo": "paragraph", "overlap": 0}), _spelled("v3"), _spelled(None)
    ('algo paragraph, overlap 0', 'v3', '')
    >>> _spelled({"sha256": "0123456789abcdef", "name": "rank.py:score", "call": "rank.py:score"})
    'rank.py:score, sha256 0123456789ab'
    """
    if not isinstance(value, Mapping):
        return "" if value is None else str(value)
    name = value.get("name")
    parts = [str(name)] if name is not None else []
    for key, element in value.items():
        if element is not None and element != name:
            parts.append(f"{key} {str(element)[:_DIGEST] if key == 'sha256' else element}")
    return ", ".join(parts)


def _without(grid: Grid, names: Collection[str], *, filled: bool = False) -> Grid:
    """Return the table without those of the named columns that are empty, or without them all.

    A system with such a name comes before them, so that the last column of a name is meant.
    """
    places = {name: at for at, name in enumerate(grid[0]) if at and name in names}.values()
    gone = [at for at in places if filled or not any(row[at] for row in grid[1:])]
    return [[cell for at, cell in enumerate(row) if at not in gone] for row in grid]
