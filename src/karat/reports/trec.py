"""The layout of ``trec_eval -q``: one line per query and measure, then those for all queries."""

from __future__ import annotations

import re

import polars as pl

from karat.errors import UsageError
from karat.formats.trec import one_word, unfit_for_columns
from karat.measure.names import with_gain
from karat.reports.document import Report, System

_CANONICAL = re.compile(r"(?P<name>\w+)(?:@(?P<cutoff>[\d.]+))?")
_PLAIN = {
    "AP": "map",
    "Bpref": "bpref",
    "GMAP": "gm_map",
    "NumRel": "num_rel",
    "NumRelRet": "num_rel_ret",
    "NumRet": "num_ret",
    "RR": "recip_rank",
    "Rprec": "Rprec",
    "SetF": "set_F",
    "SetP": "set_P",
    "SetR": "set_recall",
    "infAP": "infAP",
    "nDCG": "ndcg",
}
_WITH_CUTOFF = {
    "AP": "map_cut",
    "Hit": "success",
    "P": "P",
    "R": "recall",
    "nDCG": "ndcg_cut",
}
# trec_eval counts these: whole numbers for a query, and their sum for all.
_COUNTED = {"num_ret", "num_rel", "num_rel_ret"}
# One number for the set: trec_eval prints it for all queries only.
_FOR_ALL_ONLY = {"gm_map"}
# In place of a query id.
ALL = "all"


def to_trec(report: Report) -> bytes:
    """Return the lines of every system, one system after the other."""
    lines: list[str] = []
    for system in report.systems:
        query_ids = system.scores.table["query_id"]
        # Ids that would be read back as other columns or lines.
        odd = query_ids.filter(unfit_for_columns(query_ids) | (query_ids == ALL))
        if odd.len():
            why = (
                "is the name of the lines on all queries" if odd[0] == ALL else "holds white space"
            )
            raise UsageError(
                f"output trec: query_id {odd[0]!r} {why}, which the layout of trec_eval cannot"
                " carry; write csv, json or parquet"
            )
        lines += _lines(system)
    return "".join(lines).encode()


def trec_name(measure: str) -> str:
    """Return the name of a measure in trec_eval, or karat's own where it has none.

    >>> trec_name("nDCG@10"), trec_name("IPrec@0.1"), trec_name("RR@10")
    ('ndcg_cut_10', 'iprec_at_recall_0.10', 'RR@10')
    """
    match = _CANONICAL.fullmatch(measure)
    if match is None:
        return measure
    name, cutoff = match["name"], match["cutoff"]
    if cutoff is None:
        return _PLAIN.get(name, measure)
    if name == "IPrec":
        return f"iprec_at_recall_{float(cutoff):.2f}"
    return f"{_WITH_CUTOFF[name]}_{cutoff}" if name in _WITH_CUTOFF else measure


def _lines(system: System) -> list[str]:
    scores = system.scores
    table = scores.table.sort("query_id")
    # The name in trec_eval where its linear gain is used, else karat's own.
    names = {str(m): trec_name(str(with_gain(m, scores.conventions))) for m in scores.measures}
    names = {measure: names.get(measure, trec_name(measure)) for measure in system.summaries}
    columns = [
        (name, table[measure].to_list())
        for measure, name in names.items()
        if measure in table.columns and name not in _FOR_ALL_ONLY
    ]
    # Queries that trec_eval 9 averages under -c but does not print.
    silent: set[str] = set()
    if scores.conventions.profile == "trec":
        silent = set(scores.ids(scores.status == "missing"))
    lines = [
        _line(name, query_id, values[row])
        for row, query_id in enumerate(table["query_id"].to_list())
        if query_id not in silent
        for name, values in columns
        if values[row] is not None
    ]
    # Queries with a value, which trec_eval counts as evaluated.
    answered = table.select(pl.any_horizontal(pl.exclude("query_id").is_not_null()))
    number = int(answered.to_series().sum()) if table.width > 1 else 0
    lines += [
        _line("runid", ALL, one_word(str(scores.meta.get("tag", system.name)))),
        _line("num_q", ALL, number),
    ]
    for measure, summary in system.summaries.items():
        name = names[measure]
        if name in _COUNTED:
            lines.append(_line(name, ALL, float(table[measure].sum())))
        elif summary.mean is not None:
            lines.append(_line(name, ALL, summary.mean))
    return lines


def _line(name: str, query_id: str, value: float | int | str) -> str:
    if isinstance(value, float):
        value = f"{value:.0f}" if name in _COUNTED else f"{value:6.4f}"
    return f"{name:<22}\t{query_id}\t{value}\n"
