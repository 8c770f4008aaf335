"""Pages on the store's judgments: sets, imports, conflicts, agreement, exports and the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.pages.formatting import NOTHING, label, percent, plural
from karat.pages.page import Grid, Page, Section, TableColumns, table

Results = Mapping[str, Any]

_CANNOT_TELL = "can't tell"


def sets_page(results: Results) -> Page:
    """Return the page on every set, with the progress of each of its raters."""
    sets = results["sets"]
    if not sets:
        return Page("Label sets", ["there is no label set yet; make one: karat labels new POOL"])
    grid: Grid = [["set", "judged", "of", _CANNOT_TELL, "conflicts", "decided"]]
    lines = []
    for each in sets:
        name = f"{each['id']} {label(each['name'])}"
        conflicts = f"{each['open']:,}"
        if each["open"] < each["conflicts"]:
            conflicts += f" of {each['conflicts']:,}"
        judged, size, decided = (f"{each[key]:,}" for key in ("judged", "size", "decided"))
        grid.append([name, judged, size, "", conflicts, decided])
        for rater in each["raters"]:
            counts = [f"{rater[key]:,}" for key in ("judged", "of", "cannot_tell")]
            grid.append([f"  {label(rater['rater'])}", *counts, "", ""])
        if not each["readable"]:
            lines.append(f"{name} has no texts: it cannot be labelled by hand")
    return Page("Label sets", [plural(len(sets), "label set")], [Section("", grid, lines)])


def new_set_page(results: Results) -> Page:
    """Return the page on the set of a pool."""
    done = "made" if results["new"] else "these pairs exist already, as"
    size = plural(results["set"]["size"], "pair")
    return Page("A label set", notes=[f"{done} {_set(results['set'])}: {size}"])


def import_page(results: Results) -> Page:
    """Return the page on what was added, what existed, and what was left out."""
    label_set = results["set"]
    which = "the new " if results["new"] else ""
    added = plural(results["added"], "judgment")
    headline = [f"{added} added to {which}{_set(label_set)}, {plural(label_set['size'], 'pair')}"]
    counts = {
        "existed already": results["known"],
        _CANNOT_TELL: results["cannot_tell"],
        "left out because the judge failed": results["failed"],
    }
    lines = [f"{words}: {count:,}" for words, count in counts.items() if count]
    grid: Grid = [["rater", "judgments"]]
    grid += [[label(name), f"{count:,}"] for name, count in results["raters"].items()]
    return Page("Judgments imported", headline, [Section("", grid, lines)])


def conflicts_page(results: Results) -> Page:
    """Return the page on each pair that raters differ on, with the grades of each."""
    total = results["total"]
    if not total:
        return Page("Conflicts", [f"raters differ on no pair of {_set(results['set'])}"])
    decided = total - results["open"]
    pairs = f"raters differ on {plural(total, 'pair')} of {_set(results['set'])}"
    headline = [pairs + (f", {decided:,} of them decided" if decided else "")]
    sections = [_conflict(conflict) for conflict in results["conflicts"]]
    notes = _shown(len(sections), results["listed"])
    return Page("Conflicts", headline, sections, notes)


def _conflict(conflict: Results) -> Section:
    columns: TableColumns = {
        "rater": "rater",
        "grade": lambda judgment: _grade(judgment["grade"]),
        "because": lambda judgment: _line(judgment["rationale"]),
    }
    grid, lines = table(conflict["judgments"], columns), []
    if decision := conflict["decision"]:
        parts = [f"{_grade(decision['grade'])} by {label(decision['rater'])}"]
        parts += filter(None, [_line(decision["rationale"])])
        lines.append(f"decided: {', '.join(parts)}")
    ids = [label(conflict["query_id"]), label(conflict["item_id"])]
    return Section(" · ".join(filter(None, [*ids, _line(conflict["query"])])), grid, lines)


def judgment_page(results: Results) -> Page:
    """Return the page on a judgment that was added or withdrawn."""
    judgment = results["judgment"]
    pair = f"{label(judgment['query_id'])} · {label(judgment['item_id'])}"
    kind = "the decision " if judgment["source"] == "adjudication" else ""
    act = "decided" if results["act"] == "decided" else f"withdrawn: {kind}".rstrip()
    sentence = f"{act} {_grade(judgment['grade'])} by {label(judgment['rater'])}"
    return Page("A judgment", notes=[f"{pair}: {sentence}, in {_set(results['set'])}"])


def agreement_page(results: Results) -> Page:
    """Return the page on how far raters agree, and what a majority leaves open."""
    raters = results["raters"]
    if len(raters) < 2:
        who = "only one rater has" if raters else "nobody has"
        return Page("Agreement", [f"{who} judged in {_set(results['set'])}; agreement needs two"])
    pairs = [{**pair, "names": " and ".join(pair["raters"])} for pair in results["pairs"]]
    columns: TableColumns = {
        "raters": "names",
        "both graded": "n",
        "same": lambda pair: NOTHING if pair["share"] is None else percent(pair["share"]),
        "kappa": lambda pair: _figure(pair["kappa"]),
        "linear": lambda pair: _figure(pair["kappa_linear"]),
    }
    because = [f"{label(pair['names'])}: {pair['because']}" for pair in pairs if pair["because"]]
    headline = [f"{plural(len(raters), 'rater')} of {_set(results['set'])}"]
    alpha = " · ".join(f"{level} {_figure(value)}" for level, value in results["alpha"].items())
    counts = results["majority"]
    parts = [f"{counts['graded']:,} graded", plural(counts["ties"], "tie")]
    parts += [f"{counts['cannot_tell']:,} {_CANNOT_TELL}", f"{counts['unjudged']:,} unjudged"]
    lines = [
        *because,
        f"Krippendorff's alpha of all raters: {alpha}",
        f"by majority: {', '.join(parts)}, {counts['adjudicated']:,} decided",
    ]
    return Page("Agreement", headline, [Section("", table(pairs, columns), lines)])


def export_page(results: Results) -> Page:
    """Return the page on what was written, and what was not."""
    whose = f" of {label(results['rater'])}" if results["rater"] else ""
    if "judgments" in results:
        written = f"{plural(results['judgments'], 'judgment')}{whose}"
    else:
        written = f"{plural(results['graded'], 'pair')}{whose} by {results['resolve']}"
    lines = []
    for file in results["files"]:
        lines.append(f"{label(file['path'])}: {file['rows']:,} written as {file['format']}")
        if file["lost"]:
            lines.append(f"not kept by {file['format']}: {', '.join(file['lost'])}")
    headline = [f"{written} of {_set(results['set'])}"]
    return Page("Exported", headline, [Section("", None, lines)], list(_unwritten(results)))


def _unwritten(results: Results) -> Iterator[str]:
    """Yield what was decided, and which pairs were not written."""
    if ties := results.get("ties"):
        pair = f"{label(ties[0]['query_id'])} · {label(ties[0]['item_id'])}"
        count = plural(len(ties), "tie is", "ties are")
        yield f"{count} not written, the first on {pair}; decide them with karat labels adjudicate"
    without = "not decided on" if results["resolve"] == "adjudicated" else "not judged"
    counts = {
        "decided": results.get("adjudicated"),
        "not written because nobody could tell": results.get("cannot_tell"),
        without: results.get("unjudged"),
    }
    yield from (f"{words}: {plural(count, 'pair')}" for words, count in counts.items() if count)


def log_page(results: Results) -> Page:
    """Return the page on the log, one row per judgment, the newest first."""
    judgments = results["judgments"]
    grid = table(
        judgments,
        {
            "given (UTC)": lambda row: row["given_at"].replace("T", " ")[:16],
            "query": "query_id",
            "item": "item_id",
            "grade": lambda row: _grade(row["grade"]),
            "source": lambda row: f"{row['rater']}, {row['source']}",
            "what": lambda row: "" if row["state"] == "counts" else row["state"],
            "text": lambda row: " ".join(row["rationale"].split()) or None,
        },
    )
    headline = [f"{plural(results['total'], 'judgment')} of {_set(results['set'])}"]
    notes = _shown(len(judgments), results["total"])
    return Page("The log", headline, [Section("", grid)], notes)


def _set(label_set: Results) -> str:
    return f"label set {label_set['id']} ({label(label_set['name'])})"


def _shown(count: int, total: int) -> list[str]:
    return [f"{count:,} of {total:,} shown; --limit {total} shows all"] if count < total else []


def _grade(grade: float | None) -> str:
    return _CANNOT_TELL if grade is None else f"{grade:g}"


def _figure(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _line(text: str) -> str:
    return label(" ".join(text.split()))
