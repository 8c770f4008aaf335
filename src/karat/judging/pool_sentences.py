"""What the numbers on the fairness of gold mean, in sentences, and the lines they are held to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Worth a sentence: a run that changes by more than this share of its value without what it alone
# has, a top of which less is judged, ranks at which the judged shares of two runs differ by more,
# and a larger share of judgments that are in no given run's top.
LINES = {"change": 0.05, "coverage": 0.5, "uneven": 0.1, "elsewhere": 0.2}
_ALONE = "the judgments that no other given run has"
# More pairs than this are counted, not named.
_NAMED = 3

Body = Mapping[str, Any]


def is_fair(body: Body) -> bool | None:
    """Whether no run changes much, nor its order, without the judgments that it alone has.

    None where that cannot be told: there is one run, nothing was scored, too little is judged for
    anything to be found, or many judgments come from elsewhere than the tops of these runs.
    """
    if _from_elsewhere(body):
        return None
    if any(_moved(system) for system in body["systems"]):
        return False
    told = all(system["left_out"] and _known(system) for system in body["systems"])
    return None if not told or _hardly_judged(body) else True


def sentences(body: Body) -> list[str]:
    """What the document on a bias means, the verdict first."""
    nothing = _nothing(body)
    if nothing is not None:
        return [f"nothing can be told: {nothing}"]
    return [
        *_verdict(body),
        *_uneven(body),
        *(line for rbp, pairs in body["differences"].items() for line in _orders(rbp, pairs)),
        *_condensed(body),
    ]


def _nothing(body: Body) -> str | None:
    """Why gold and runs have nothing to do with each other, if they have not."""
    if not any(map(_known, body["systems"])):
        return "no query has a relevant item in this gold"
    if any(_shares(body).values()):
        return None
    return (
        f"no run has a judged item in its top {body['depth']:,}; check that gold and runs name the"
        " same items (a document is none of its chunks)"
    )


def _verdict(body: Body) -> Iterator[str]:
    systems = body["systems"]
    if len(systems) < 2:
        yield (
            "leave-one-run-out needs two runs or more: of one alone nobody can tell which judgments"
            " others would have contributed"
        )
        return
    moved = [system for system in systems if _moved(system)]
    if _from_elsewhere(body):
        yield from _cannot_tell(body)
        for system in moved:
            yield from _losses(system, meant=False)
        return
    for system in moved:
        yield from _losses(system, meant=True)
        yield from _falls(system)
    if moved:
        return
    most = _most(systems)
    if _hardly_judged(body):
        yield f"leave-one-run-out finds no bias ({most}), which says little: {_little(body)}"
    else:
        line = _percent(LINES["change"])
        yield f"the gold is fair to these runs: {most}; the line is {line}, and the order stays"


def _cannot_tell(body: Body) -> Iterator[str]:
    """Why leaving a run out says nothing of gold that was pooled from others."""
    gold, depth = body["gold"], body["depth"]
    share = _share_of(gold, "in_no_top")
    most = "most" if share > 0.5 else "many"
    counts = f"{gold['in_no_top']:,} of {gold['judgments']:,}, {_percent(share)}"
    origin = "runs or ranks that are not given"
    if _share_of(gold, "in_no_list") <= LINES["elsewhere"]:
        # The lists hold most of these further down.
        origin = f"runs that are not given, or below rank {depth:,} (give the --depth of the pool)"
    yield (
        f"whether the gold is fair to these runs cannot be told: {most} judgments ({counts}) are in"
        f" no given run's top {depth:,} and come from {origin}, so leaving out what only one given"
        " run has overstates the bias"
    )
    shares = _shares(body)
    low = min(shares, key=shares.__getitem__)
    yield (
        f"what counts against a run that was not pooled is what nobody judged of it: at most"
        f" {_percent(1 - shares[low])} of a top {depth:,} ({low})"
    )


def _losses(system: Body, *, meant: bool) -> Iterator[str]:
    """A run that changes by more than the line without what it alone has, and what that means."""
    own = system["left_out"]["unique"]
    judgments = f"the {own:,} {'judgment' if own == 1 else 'judgments'} that no other given run has"
    cells = {name: one for name, one in _measures(system).items() if _beyond(one)}
    for worse, what in ((True, "worse than it is"), (False, "better than it is")):
        for verb, sign in (("loses", -1), ("gains", 1)):
            told = [
                _change(name, one)
                for name, one in cells.items()
                if _is_worse(one) is worse and sign * one["change"] > 0
            ]
            if told:
                means = f": a new run of its kind would look {what}" if meant else ""
                yield f"{system['name']} {verb} {_and(told)} without {judgments}{means}"


def _falls(system: Body) -> Iterator[str]:
    """A run whose place among the others depends on what it alone has."""
    name = system["name"]
    by: dict[tuple[str, str], list[str]] = {}
    for measure, one in _measures(system).items():
        for pair in one["turned"]:
            between = f"{measure} ({_signed(pair['before'])} to {_signed(pair['after'])})"
            if pair["first"] == name:
                by.setdefault(("falls behind", pair["second"]), []).append(between)
            elif pair["second"] == name:
                by.setdefault(("passes", pair["first"]), []).append(between)
    if len(by) > _NAMED:
        others = len({other for _, other in by})
        moved = f"changes places with {others:,} runs: {_places(system)}"
        yield f"without {_ALONE} {name} {moved}"
        return
    for (verb, other), measures in by.items():
        yield f"without {_ALONE} {name} {verb} {other} by {_and(measures)}"


def _places(system: Body) -> str:
    """The rank that a run has and the one it would have, by each measure that turns a pair."""
    return _and(
        [
            f"from rank {one['rank']} to {one['rank_without']} by {measure}"
            for measure, one in _measures(system).items()
            if any(system["name"] in (pair["first"], pair["second"]) for pair in one["turned"])
        ]
    )


def _uneven(body: Body) -> Iterator[str]:
    """The first ranks at which unequal shares of two runs are judged."""
    for bands in zip(*(system["coverage"] for system in body["systems"]), strict=True):
        shares = {
            system["name"]: band["share"]
            for system, band in zip(body["systems"], bands, strict=True)
            if band["share"] is not None
        }
        low, high = (end(shares, key=shares.__getitem__, default="") for end in (min, max))
        if shares and shares[high] - shares[low] > LINES["uneven"]:
            first, last = bands[0]["from"], bands[0]["to"]
            ranks = f"rank {first:,}" if first == last else f"ranks {first:,} to {last:,}"
            yield (
                f"at {ranks} {_percent(shares[low])} of {low} is judged and"
                f" {_percent(shares[high])} of {high}: what nobody judged counts against {low} more"
            )
            return


def _orders(rbp: str, pairs: Sequence[Body]) -> Iterator[str]:
    """Runs that RBP cannot put in order, then those that only ranks below the end could turn."""
    if not pairs:
        return
    shut = [pair for pair in pairs if pair["open"] in _WHY]
    if not shut:
        yield f"{rbp} keeps the order of every pair of runs, whatever the unjudged items are"
    elif len(shut) > _NAMED:
        yield f"{rbp} cannot order {len(shut):,} of {len(pairs):,} pairs of runs: {_reasons(shut)}"
    else:
        for pair in shut:
            first, second = pair["systems"]
            why = _WHY[pair["open"]]
            yield f"{rbp} cannot order {first} and {second}: {why} {_reach(pair, 'range')}"
    ends = [pair for pair in pairs if pair["open"] == "beyond"]
    if len(ends) > _NAMED:
        yield f"by {rbp} ranks below the end of lists could turn {len(ends):,} pairs of runs"
        return
    for pair in ends:
        first, second = pair["systems"]
        told = f"could turn {first} and {second}: with them {_reach(pair, 'range_beyond')}"
        yield f"by {rbp} only ranks below the end of lists {told}"


_WHY = {
    "unjudged": "whatever the unjudged items are,",
    "equal": "both are the same now, and whatever the unjudged items are,",
}


def _reach(pair: Body, name: str) -> str:
    """Between what a difference lies."""
    first, second = pair["systems"]
    low, high = pair[name]
    return f"{second} less {first} lies between {_signed(low)} and {_signed(high)}"


def _reasons(pairs: Sequence[Body]) -> str:
    same = sum(pair["open"] == "equal" for pair in pairs)
    told = "judging the unjudged items could turn them"
    if not same:
        return told
    return f"{same:,} are the same now" + (f", and of others {told}" if same < len(pairs) else "")


def _condensed(body: Body) -> Iterator[str]:
    """Pairs of runs whose order depends on whether unjudged items take up ranks."""
    if len(body["systems"]) < 2:
        return
    found = {name: pairs for name, pairs in body["turned"].items() if pairs}
    if not found:
        yield "condensed lists leave the order of the runs as it is"
    for name, pairs in found.items():
        if len(pairs) > _NAMED:
            yield f"condensed lists turn {len(pairs):,} pairs of runs by {name}"
            continue
        for pair in pairs:
            yield (
                f"the order of {pair['first']} and {pair['second']} turns with condensed lists by"
                f" {name}: a difference of {_signed(pair['before'])} becomes"
                f" {_signed(pair['after'])}"
            )


def _measures(system: Body) -> dict[str, Any]:
    return system["left_out"]["measures"] if system["left_out"] else {}


def _known(system: Body) -> bool:
    """Whether anything was scored."""
    return any(one["value"] is not None for one in system["condensed"]["measures"].values())


def _moved(system: Body) -> bool:
    """Whether leaving out what it alone has changes a run, or its order, by more than the line."""
    name = system["name"]
    return any(
        _beyond(one) or any(name in (pair["first"], pair["second"]) for pair in one["turned"])
        for one in _measures(system).values()
    )


def _beyond(cell: Body) -> bool:
    if not cell["change"]:
        return False
    return cell["share"] is None or abs(cell["share"]) > LINES["change"]


def _is_worse(cell: Body) -> bool:
    return (cell["change"] > 0) is (cell["better"] == "lower")


def _most(systems: Sequence[Body]) -> str:
    """The largest change of all, as a share."""
    cells = [
        (abs(one["share"]), system["name"], name, one)
        for system in systems
        for name, one in _measures(system).items()
        if one["share"]
    ]
    if not cells:
        return f"no run changes without {_ALONE}"
    share, name, measure, one = max(cells, key=lambda cell: cell[0])
    change = _figure(abs(one["change"]))
    return (
        f"without {_ALONE} no run changes by more than {_percent(share)}"
        f" ({name}, {change} {measure})"
    )


def _shares(body: Body) -> dict[str, float]:
    """What is judged of each run's top, over all its bands."""
    shares = {}
    for system in body["systems"]:
        items = sum(band["items"] for band in system["coverage"])
        if items:
            shares[system["name"]] = sum(band["judged"] for band in system["coverage"]) / items
    return shares


def _from_elsewhere(body: Body) -> bool:
    """Whether many judgments were contributed by others than the tops of these runs."""
    return _share_of(body["gold"], "in_no_top") > LINES["elsewhere"]


def _share_of(gold: Body, what: str) -> float:
    """The share of all judgments."""
    share: float = gold[what] / gold["judgments"] if gold["judgments"] else 0.0
    return share


def _hardly_judged(body: Body) -> bool:
    return min(_shares(body).values(), default=0.0) < LINES["coverage"]


def _little(body: Body) -> str:
    shares = _shares(body)
    low = min(shares, key=shares.__getitem__)
    line = _percent(LINES["coverage"])
    judged = f"only {_percent(shares[low])} of the top {body['depth']:,} of {low}"
    return f"{judged} is judged, below {line}"


def _change(name: str, cell: Body) -> str:
    share = "" if cell["share"] is None else f" ({_percent(abs(cell['share']))})"
    return f"{_figure(abs(cell['change']))} {name}{share}"


def _and(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _figure(value: float) -> str:
    return f"{value:.4f}"


def _signed(value: float) -> str:
    return f"{value:+.4f}"


def _percent(share: float) -> str:
    """A share with one decimal where that says something.

    >>> _percent(0.05), _percent(0.1234), _percent(0.00001)
    ('5 %', '12.3 %', 'below 0.1 %')
    """
    if 0 < share < 0.001:
        return "below 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
