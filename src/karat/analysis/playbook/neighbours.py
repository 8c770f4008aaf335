"""A rule of the playbook that looks at misses beside which the right document stands."""

from __future__ import annotations

import polars as pl

from karat.analysis.playbook.case import Case, Finding, kept_lists
from karat.analysis.playbook.rules import by_documents, chunks_split
from karat.measures.names import parse_measure
from karat.measures.scores import score
from karat.tables import Run

# Fewer misses, or a smaller share of them, say nothing of the chunker.
FEWEST, SHARE = 5, 0.5
_NAMED = 3


def neighbour_found(case: Case) -> list[Finding]:
    """Queries miss, and most of them have another chunk of a gold document at the top."""
    near, cut = case.near, case.miss
    missed = case.values("Hit", cut) == 0
    by_doc = by_documents(case)
    lists = kept_lists(near)
    names = [name for name in ("item_id", "doc_id", "rank") if name in lists.columns]
    ids = pl.Series(by_doc.query_ids, dtype=pl.String)
    run = Run(lists.select(names).with_columns(query_id=ids.gather(lists["row"])), order="rank")
    hit = parse_measure(f"Hit@{near.k}")
    beside = missed & (score(run, by_doc, [hit], derived=True).values(str(hit)) == 1)
    misses, found = int(missed.sum()), int(beside.sum())
    # Where much of the evidence is nowhere, the rule on whole documents has said so.
    if found < FEWEST or found < SHARE * misses or chunks_split(case):
        return []
    some = [str(name) for name in ids.filter(pl.Series(beside))[:_NAMED]]
    sentence = (
        f"{found} of the {misses} queries without gold in the top {cut.k} have another chunk of its"
        f" document in the top {near.k} ({', '.join(some)} …): the right document is found but the"
        " wrong chunk; the chunker may be splitting answers from their context"
    )
    figures = {"misses": misses, "queries": found, "examples": some, "n": case.n}
    return [Finding("neighbour_found", sentence, figures, "the chunker")]
