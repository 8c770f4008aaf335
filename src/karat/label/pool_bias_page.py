"""What a pool bias means: its verdict, its sentences and its page, made of the plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from karat.pages.formatting import NOTHING, change, figure, label, percent, plural
from karat.pages.page import Grid, Page, Section

# Worth a sentence: a run that changes by a larger share of its value without the judgments that
# only it has; a top of which a smaller share is judged; ranks at which the judged shares of two
# runs differ by more; a larger share of judgments that are in no given run's top.
THRESHOLDS = {"change": 0.05, "coverage": 0.5, "uneven": 0.1, "elsewhere": 0.2}
_UNIQUE = "the judgments that no other given run has"
# More pairs than this are counted, not named.
_NAMED = 3

Body = Mapping[str, Any]


def is_fair(body: Body) -> bool | None:
    """Return whether every run keeps its score and place without the judgments only it has.

    None where this is unknown: there is one run, nothing was scored, too little is judged to
    find anything, or many judgments come from outside the tops of these runs.
    """
    if _mostly_elsewhere(body):
        return None
    if any(_is_moved(system) for system in body["systems"]):
        return False
    complete = all(system["left_out"] and _is_scored(system) for system in body["systems"])
    return True if complete and not _is_hardly_judged(body) else None


def sentences(body: Body) -> list[str]:
    """Return what the numbers mean, the verdict first."""
    if not any(map(_is_scored, body["systems"])):
        return ["no conclusion: no query has a relevant item in this gold"]
    if not any(_judged_shares(body).values()):
        reason = (
            f"no run has a judged item in its top {body['depth']:,}; check that gold and runs name"
            " the same items (a document id is not a chunk id)"
        )
        return [f"no conclusion: {reason}"]
    return [
        *_verdict(body),
        *_uneven(body),
        *(line for rbp, pairs in body["differences"].items() for line in _orders(rbp, pairs)),
        *_condensed(body),
    ]


def _verdict(body: Body) -> Iterator[str]:
    systems = body["systems"]
    if len(systems) < 2:
        yield (
            "leave-one-run-out needs two runs or more: one run alone does not show which judgments"
            " others would have contributed"
        )
        return
    moved = [system for system in systems if _is_moved(system)]
    if _mostly_elsewhere(body):
        yield from _cannot_tell(body)
        for system in moved:
            yield from _losses(system, conclude=False)
        return
    for system in moved:
        yield from _losses(system, conclude=True)
        yield from _places(system)
    if moved:
        return
    largest = _largest_change(systems)
    if _is_hardly_judged(body):
        low, share = min(_judged_shares(body).items(), key=lambda item: item[1])
        yield (
            f"leave-one-run-out finds no bias ({largest}), but that says little: only"
            f" {_percent(share)} of the top {body['depth']:,} of {low} is judged, below"
            f" {_percent(THRESHOLDS['coverage'])}"
        )
    else:
        yield (
            f"the gold is fair to these runs: {largest}; the threshold is"
            f" {_percent(THRESHOLDS['change'])}, and the order does not change"
        )


def _cannot_tell(body: Body) -> Iterator[str]:
    """Explain why leaving a run out says nothing about gold that was pooled from others."""
    gold, depth = body["gold"], body["depth"]
    share = _share_of(gold, "in_no_top")
    most = "most" if share > 0.5 else "many"
    counts = f"{gold['in_no_top']:,} of {gold['judgments']:,}, {_percent(share)}"
    origin = "runs or ranks that are not given"
    if _share_of(gold, "in_no_list") <= THRESHOLDS["elsewhere"]:
        # The lists hold most of these further down.
        origin = f"runs that are not given, or below rank {depth:,} (give the --depth of the pool)"
    yield (
        f"cannot tell whether the gold is fair to these runs: {most} judgments ({counts}) are in"
        f" no given run's top {depth:,} and come from {origin}, so leaving out what only one given"
        " run has overstates the bias"
    )
    shares = _judged_shares(body)
    low = min(shares, key=shares.__getitem__)
    yield (
        "a run that was not pooled loses by its unjudged items: at most"
        f" {_percent(1 - shares[low])} of a top {depth:,} ({low})"
    )


def _losses(system: Body, *, conclude: bool) -> Iterator[str]:
    """Name a run that changes by more than the threshold without the judgments only it has."""
    unique = system["left_out"]["unique"]
    judgments = f"the {plural(unique, 'judgment')} that no other given run has"
    cells = {name: cell for name, cell in _measures(system).items() if _is_large(cell)}
    for worse, what in ((True, "worse than it is"), (False, "better than it is")):
        for verb, sign in (("loses", -1), ("gains", 1)):
            changes = [
                _change(name, cell)
                for name, cell in cells.items()
                if ((cell["change"] > 0) is (cell["better"] == "lower")) is worse
                and sign * cell["change"] > 0
            ]
            if changes:
                means = f": a new run of its kind would look {what}" if conclude else ""
                yield f"{system['name']} {verb} {_and(changes)} without {judgments}{means}"


def _places(system: Body) -> Iterator[str]:
    """Name the runs that a run changes places with without the judgments only it has."""
    name = system["name"]
    by: dict[tuple[str, str], list[str]] = {}
    ranks = []
    for measure, cell in _measures(system).items():
        own = [pair for pair in cell["turned"] if name in (pair["first"], pair["second"])]
        for pair in own:
            verb, other = ("falls behind", pair["second"])
            if pair["second"] == name:
                verb, other = ("passes", pair["first"])
            between = f"{measure} ({pair['before']:+.4f} to {pair['after']:+.4f})"
            by.setdefault((verb, other), []).append(between)
        if own:
            ranks.append(f"from rank {cell['rank']} to {cell['rank_without']} by {measure}")
    if len(by) > _NAMED:
        others = len({other for _, other in by})
        yield f"without {_UNIQUE} {name} changes places with {others:,} runs: {_and(ranks)}"
        return
    for (verb, other), measures in by.items():
        yield f"without {_UNIQUE} {name} {verb} {other} by {_and(measures)}"


def _uneven(body: Body) -> Iterator[str]:
    """Name the first ranks at which unequal shares of two runs are judged."""
    for bands in zip(*(system["coverage"] for system in body["systems"]), strict=True):
        shares = {
            system["name"]: band["share"]
            for system, band in zip(body["systems"], bands, strict=True)
            if band["share"] is not None
        }
        low, high = (end(shares, key=shares.__getitem__, default="") for end in (min, max))
        if shares and shares[high] - shares[low] > THRESHOLDS["uneven"]:
            first, last = bands[0]["from"], bands[0]["to"]
            ranks = f"rank {first:,}" if first == last else f"ranks {first:,} to {last:,}"
            yield (
                f"at {ranks} {_percent(shares[low])} of {low} is judged and"
                f" {_percent(shares[high])} of {high}: unjudged items count against {low} more"
            )
            return


_WHY_OPEN = {
    "unjudged": "depending on the unjudged items,",
    "equal": "both have the same value now; depending on the unjudged items,",
}


def _orders(rbp: str, pairs: Sequence[Body]) -> Iterator[str]:
    """Name runs that RBP cannot order, then those that only ranks below the end could reverse."""
    if not pairs:
        return
    unordered = [pair for pair in pairs if pair["open"] in _WHY_OPEN]
    if not unordered:
        yield f"{rbp} orders every pair of runs, whatever the unjudged items are"
    elif len(unordered) > _NAMED:
        same = sum(pair["open"] == "equal" for pair in unordered)
        reasons = [f"{same:,} have the same value now"] if same else []
        if same < len(unordered):
            reasons.append("judging the unjudged items could reverse the order")
        yield (
            f"{rbp} cannot order {len(unordered):,} of {len(pairs):,} pairs of runs:"
            f" {'; '.join(reasons)}"
        )
    else:
        for pair in unordered:
            first, second = pair["systems"]
            why = _WHY_OPEN[pair["open"]]
            yield f"{rbp} cannot order {first} and {second}: {why} {_reach(pair, 'range')}"
    ends = [pair for pair in pairs if pair["open"] == "beyond"]
    if len(ends) > _NAMED:
        yield f"by {rbp} ranks below the end of lists could reverse {len(ends):,} pairs of runs"
        return
    for pair in ends:
        first, second = pair["systems"]
        yield (
            f"by {rbp} only ranks below the end of lists could reverse {first} and {second}:"
            f" with them {_reach(pair, 'range_beyond')}"
        )


def _reach(pair: Body, name: str) -> str:
    first, second = pair["systems"]
    low, high = pair[name]
    return f"{second} less {first} lies between {low:+.4f} and {high:+.4f}"


def _condensed(body: Body) -> Iterator[str]:
    """Name pairs of runs whose order depends on whether unjudged items use up ranks."""
    if len(body["systems"]) < 2:
        return
    swapped = {name: pairs for name, pairs in body["turned"].items() if pairs}
    if not swapped:
        yield "condensed lists do not change the order of the runs"
    for name, pairs in swapped.items():
        if len(pairs) > _NAMED:
            yield f"condensed lists reverse {len(pairs):,} pairs of runs by {name}"
            continue
        for pair in pairs:
            yield (
                f"condensed lists reverse {pair['first']} and {pair['second']} by {name}: a"
                f" difference of {pair['before']:+.4f} becomes {pair['after']:+.4f}"
            )


def _measures(system: Body) -> dict[str, Any]:
    return system["left_out"]["measures"] if system["left_out"] else {}


def _is_scored(system: Body) -> bool:
    return any(cell["value"] is not None for cell in system["condensed"]["measures"].values())


def _is_moved(system: Body) -> bool:
    """Return whether a run changes by more than the threshold, or changes places."""
    name = system["name"]
    return any(
        _is_large(cell) or any(name in (pair["first"], pair["second"]) for pair in cell["turned"])
        for cell in _measures(system).values()
    )


def _is_large(cell: Body) -> bool:
    if not cell["change"]:
        return False
    return cell["share"] is None or abs(cell["share"]) > THRESHOLDS["change"]


def _largest_change(systems: Sequence[Body]) -> str:
    cells = [
        (abs(cell["share"]), system["name"], name, cell)
        for system in systems
        for name, cell in _measures(system).items()
        if cell["share"]
    ]
    if not cells:
        return f"no run changes without {_UNIQUE}"
    share, name, measure, cell = max(cells, key=lambda entry: entry[0])
    return (
        f"without {_UNIQUE} no run changes by more than {_percent(share)}"
        f" ({name}, {abs(cell['change']):.4f} {measure})"
    )


def _judged_shares(body: Body) -> dict[str, float]:
    """Return how much of each run's top is judged."""
    shares = {}
    for system in body["systems"]:
        items = sum(band["items"] for band in system["coverage"])
        if items:
            shares[system["name"]] = sum(band["judged"] for band in system["coverage"]) / items
    return shares


def _mostly_elsewhere(body: Body) -> bool:
    """Return whether many judgments come from outside the tops of these runs."""
    return _share_of(body["gold"], "in_no_top") > THRESHOLDS["elsewhere"]


def _share_of(gold: Body, what: str) -> float:
    share: float = gold[what] / gold["judgments"] if gold["judgments"] else 0.0
    return share


def _is_hardly_judged(body: Body) -> bool:
    return min(_judged_shares(body).values(), default=0.0) < THRESHOLDS["coverage"]


def _change(name: str, cell: Body) -> str:
    share = "" if cell["share"] is None else f" ({_percent(abs(cell['share']))})"
    return f"{abs(cell['change']):.4f} {name}{share}"


def _and(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _percent(share: float) -> str:
    """Return a share with one decimal where it has one.

    >>> _percent(0.05), _percent(0.1234), _percent(0.00001)
    ('5 %', '12.3 %', 'below 0.1 %')
    """
    if 0 < share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def bias_page(body: Body) -> Page:
    """Return the page on a pool bias alone."""
    return Page("Is the gold fair to every run?", body["sentences"], bias_sections(body)[1:])


def bias_sections(bias: Body) -> list[Section]:
    """Return the sections on the ``bias`` of a pool."""
    judged = plural(bias["gold"]["queries_judged"], "query", "queries")
    sections = [
        Section("Is the gold fair to every run?", None, bias["sentences"]),
        Section(f"Judged by rank, of {judged} with judgments", _bands(bias), list(_gold(bias))),
    ]
    if all(system["left_out"] for system in bias["systems"]):
        grid = _change_grid(bias, "left_out", "without")
        sections.append(Section("Without what only one run has", grid, list(_unique(bias))))
    for rbp in bias["differences"]:
        sections.append(
            Section(f"{rbp} and what it leaves open", _residuals(bias, rbp), [_RESIDUAL])
        )
    grid = [*_change_grid(bias, "condensed", "condensed"), *_bpref(bias)]
    lines = list(_tau_line(bias, "condensed", "now and condensed"))
    return [*sections, Section("Condensed lists", grid, lines)]


_RESIDUAL = (
    "unjudged: the weight of returned items without a judgment · beyond: the weight of ranks below"
    " the end of a list or below the cut-off"
)


def _bands(bias: Body) -> Grid:
    ranks = [
        f"{band['from']}" if band["from"] == band["to"] else f"{band['from']}-{band['to']}"
        for band in bias["systems"][0]["coverage"]
    ]
    grid = [["system", *ranks]]
    for system in bias["systems"]:
        shares = [band["share"] for band in system["coverage"]]
        cells = [NOTHING if share is None else percent(share) for share in shares]
        grid.append([label(system["name"]), *cells])
    return grid


def _gold(bias: Body) -> Iterator[str]:
    gold = bias["gold"]
    queries = plural(gold["queries_with_relevant"], "query", "queries")
    yield (
        f"the gold: {plural(gold['judgments'], 'judgment')}, {gold['relevant']:,} relevant, of"
        f" {queries} with a relevant item; {gold['in_no_top']:,} in no given run's top, which are"
        " never left out"
    )
    if gold["below_zero"]:
        grades = plural(gold["below_zero"], "grade is", "grades are")
        yield f"{grades} below 0: pooled, and unjudged to every measure"
    if gold["disagreeing"]:
        pairs = plural(gold["disagreeing"], "pair is", "pairs are")
        yield f"{pairs} graded differently in several files; the first file counts"


def _change_grid(bias: Body, what: str, other: str) -> Grid:
    """Return measures and systems as rows: the value now and otherwise, and the rank each time."""
    grid = [["measure", "system", "now", other, "Δ", "share", "rank"]]
    for name in bias["measures"]:
        for system in bias["systems"]:
            cell = system[what]["measures"][name]
            share = cell["share"]
            grid.append(
                [
                    name,
                    label(system["name"]),
                    figure(cell["value"]),
                    figure(cell[other]),
                    change(cell["change"]),
                    NOTHING if share is None else f"{100 * share:+.1f} %" if share else "0.0 %",
                    _ranks(cell["rank"], cell[f"rank_{other}"]),
                ]
            )
    return grid


def _ranks(now: int | None, then: int | None) -> str:
    if now is None or then is None:
        return NOTHING
    return f"{now}" if now == then else f"{now} → {then}"


def _unique(bias: Body) -> Iterator[str]:
    for system in bias["systems"]:
        left = system["left_out"]
        line = (
            f"{label(system['name'])}: {plural(left['unique'], 'judgment')} that no other given"
            f" run has, {left['unique_relevant']:,} relevant"
        )
        if left["queries_emptied"]:
            lost = plural(left["queries_emptied"], "query loses", "queries lose")
            line += f"; {lost} the last relevant item (still counted in every mean)"
        yield line
    yield from _tau_line(bias, "left_out", "the lowest of all runs left out")


def _tau_line(bias: Body, what: str, which: str) -> Iterator[str]:
    taus = {name: tau[what] for name, tau in bias["taus"].items() if tau[what] is not None}
    if taus:
        values = " · ".join(f"{name} {value:.2f}" for name, value in taus.items())
        yield f"Kendall's tau of the order of the runs, {which}: {values}"


def _residuals(bias: Body, rbp: str) -> Grid:
    grid = [["system", "at least", "unjudged", "beyond", "at most"]]
    for system in bias["systems"]:
        cell = system["residual"][rbp] or {}
        cells = [figure(cell.get(name)) for name in ("low", "unjudged", "beyond", "high")]
        grid.append([label(system["name"]), *cells])
    return grid


def _bpref(bias: Body) -> Grid:
    """Return Bpref as further rows: it uses judged items only, so condensing changes nothing."""
    if "Bpref" in bias["measures"]:
        return []
    rows = []
    for system in bias["systems"]:
        cell = system["condensed"]["Bpref"]
        value, rank = figure(cell["value"]), _ranks(cell["rank"], cell["rank"])
        rows.append(["Bpref", label(system["name"]), value, value, NOTHING, NOTHING, rank])
    return rows
