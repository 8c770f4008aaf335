"""Judgments on a terminal: sets, imports, conflicts, agreement, exports and the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.reports.figures import NOTHING, label, percent, several
from karat.reports.grids import Grid
from karat.reports.pages import Page, Section

Results = Mapping[str, Any]

_CANNOT_TELL = "can't tell"


def sets_page(results: Results) -> Page:
    """Every set, and below it how far each of its raters is."""
    sets = results["sets"]
    if not sets:
        return Page("Label sets", ["no label set yet; karat labels new POOL makes one"])
    grid: Grid = [["set", "judged", "of", _CANNOT_TELL, "conflicts", "decided"]]
    for one in sets:
        open_ones = f"{one['open']:,}" + (
            f" of {one['conflicts']:,}" if one["open"] < one["conflicts"] else ""
        )
        counts = [f"{one['judged']:,}", f"{one['size']:,}", "", open_ones, f"{one['decided']:,}"]
        grid.append([f"{one['id']} {label(one['name'])}", *counts])
        for rater in one["raters"]:
            own = [f"{rater[name]:,}" for name in ("judged", "of", "cannot_tell")]
            grid.append([f"  {label(rater['rater'])}", *own, "", ""])
    lines = [
        f"{one['id']} {label(one['name'])} has no texts: it cannot be labelled by hand"
        for one in sets
        if not one["readable"]
    ]
    return Page("Label sets", [several(len(sets), "label set")], [Section("", grid, lines)])


def made_page(results: Results) -> Page:
    """What set a pool is."""
    told = "made" if results["new"] else "the same pairs are there already, as"
    one = results["set"]
    return Page("A label set", last=[f"{told} {_set(one)}: {several(one['size'], 'pair')}"])


def import_page(results: Results) -> Page:
    """What was added, what was there, and what was left out."""
    one = results["set"]
    made = "the new " if results["new"] else ""
    added = several(results["added"], "judgment")
    first = [f"{added} added to {made}{_set(one)}, {several(one['size'], 'pair')}"]
    lines = []
    if results["known"]:
        lines.append(f"there already: {results['known']:,}")
    if results["cannot_tell"]:
        lines.append(f"{_CANNOT_TELL}: {results['cannot_tell']:,}")
    if results["failed"]:
        lines.append(f"left out, since the judge failed on them: {results['failed']:,}")
    grid: Grid = [["rater", "judgments"]]
    grid += [[label(name), f"{count:,}"] for name, count in results["raters"].items()]
    return Page("Judgments imported", first, [Section("", grid, lines)])


def conflicts_page(results: Results) -> Page:
    """Each pair that raters differ on, with what every one of them said."""
    total = results["total"]
    if not total:
        return Page("Conflicts", [f"raters differ nowhere in {_set(results['set'])}"])
    decided = total - results["open"]
    pairs = f"raters differ on {several(total, 'pair')} of {_set(results['set'])}"
    first = [pairs + (f", {decided:,} of them decided" if decided else "")]
    sections = [_conflict(one) for one in results["conflicts"]]
    last = _shown(len(sections), results["listed"])
    return Page("Conflicts", first, sections, last)


def _conflict(one: Results) -> Section:
    grid: Grid = [["rater", "grade", "because"]]
    for said in one["judgments"]:
        grid.append([label(said["rater"]), _grade(said["grade"]), _line(said["rationale"])])
    decision = one["decision"]
    lines = [] if decision is None else [f"decided: {_decided(decision)}"]
    title = f"{label(one['query_id'])} · {label(one['item_id'])}"
    asked = _line(one["query"])
    return Section(f"{title} · {asked}" if asked else title, grid, lines)


def _decided(decision: Results) -> str:
    why = _line(decision["rationale"])
    return f"{_grade(decision['grade'])} by {label(decision['rater'])}" + (
        f", {why}" if why else ""
    )


def judgment_page(results: Results) -> Page:
    """A judgment that was kept or taken back."""
    one = results["judgment"]
    pair = f"{label(one['query_id'])} · {label(one['item_id'])}"
    kind = "the decision " if one["source"] == "adjudication" else ""
    act = "decided" if results["act"] == "decided" else f"withdrawn: {kind}".rstrip()
    told = f"{act} {_grade(one['grade'])} by {label(one['rater'])}"
    return Page("A judgment", last=[f"{pair}: {told}, in {_set(results['set'])}"])


def agreement_page(results: Results) -> Page:
    """Every two raters, all of them together, and what a majority leaves open."""
    raters = results["raters"]
    if len(raters) < 2:
        told = "only one rater has" if raters else "nobody has"
        return Page("Agreement", [f"{told} judged in {_set(results['set'])}; agreement takes two"])
    grid: Grid = [["raters", "both graded", "same", "kappa", "linear"]]
    because = []
    for one in results["pairs"]:
        share = NOTHING if one["share"] is None else percent(one["share"])
        figures = [_figure(one[name]) for name in ("kappa", "kappa_linear")]
        names = " and ".join(map(label, one["raters"]))
        grid.append([names, f"{one['n']:,}", share, *figures])
        because += [f"{names}: {one['because']}"] if one["because"] else []
    first = [f"{several(len(raters), 'rater')} of {_set(results['set'])}"]
    lines = [*because, _alpha(results["alpha"]), _left(results["majority"])]
    return Page("Agreement", first, [Section("", grid, lines)])


def _alpha(alpha: Results) -> str:
    told = " · ".join(f"{level} {_figure(value)}" for level, value in alpha.items())
    return f"Krippendorff's alpha of all: {told}"


def _left(counts: Results) -> str:
    parts = [f"{counts['graded']:,} graded", several(counts["ties"], "tie")]
    parts += [f"{counts['cannot_tell']:,} {_CANNOT_TELL}", f"{counts['unjudged']:,} unjudged"]
    return f"by majority: {', '.join(parts)}, {counts['adjudicated']:,} decided"


def export_page(results: Results) -> Page:
    """What was written, and what was not."""
    whose = f" of {label(results['rater'])}" if results["rater"] else ""
    if "judgments" in results:
        what = f"{several(results['judgments'], 'judgment')}{whose}"
    else:
        what = f"{several(results['graded'], 'pair')}{whose} by {results['resolve']}"
    lines = []
    for file in results["files"]:
        lines.append(f"{label(file['path'])}: {file['rows']:,} written as {file['format']}")
        if file["lost"]:
            lines.append(f"not carried by {file['format']}: {', '.join(file['lost'])}")
    return Page(
        "Exported",
        [f"{what} of {_set(results['set'])}"],
        [Section("", None, lines)],
        list(unwritten(results)),
    )


def unwritten(results: Results) -> Iterator[str]:
    """What was decided, and every pair that no file has, in one line each."""
    if results.get("adjudicated"):
        yield f"decided: {several(results['adjudicated'], 'pair')}"
    if ties := results.get("ties"):
        first = ties[0]
        pair = f"{label(first['query_id'])} · {label(first['item_id'])}"
        told = several(len(ties), "tie is", "ties are")
        yield f"{told} not written, the first on {pair}; karat labels adjudicate decides them"
    if unsure := results.get("cannot_tell"):
        yield f"not written, since nobody could tell: {unsure:,}"
    if unjudged := results.get("unjudged"):
        what = "decided on" if results["resolve"] == "adjudicated" else "judged"
        yield f"not {what}: {several(unjudged, 'pair')}"


def log_page(results: Results) -> Page:
    """One row a judgment, the newest first."""
    grid: Grid = [["given (UTC)", "query", "item", "grade", "source", "what", "text"]]
    for one in results["judgments"]:
        pair = [label(one["query_id"]), label(one["item_id"]), _grade(one["grade"])]
        who = f"{label(one['rater'])}, {label(one['source'])}"
        what = "" if one["state"] == "counts" else one["state"]
        grid.append([_minute(one["given_at"]), *pair, who, what, _line(one["rationale"])])
    first = [f"{several(results['total'], 'judgment')} of {_set(results['set'])}"]
    last = _shown(len(grid) - 1, results["total"])
    return Page("The log", first, [Section("", _trimmed(grid))], last)


def _set(one: Results) -> str:
    return f"label set {one['id']} ({label(one['name'])})"


def _shown(count: int, total: int) -> list[str]:
    return [f"{count:,} of {total:,} shown; --limit {total} shows all"] if count < total else []


def _trimmed(grid: Grid) -> Grid:
    """The grid without columns that say nothing."""
    keep = [at for at in range(len(grid[0])) if any(row[at] for row in grid[1:])]
    return [[row[at] for at in keep] for row in grid]


def _grade(grade: float | None) -> str:
    return _CANNOT_TELL if grade is None else f"{grade:g}"


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _line(text: str) -> str:
    return label(" ".join(text.split()))


def _minute(moment: str) -> str:
    return moment.replace("T", " ")[:16]
