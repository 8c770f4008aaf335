"""Lists that end above the k they would be measured at: a form that has one k refuses them."""

from __future__ import annotations

import numpy as np

from karat.errors import UsageError
from karat.measures.scores import Scores
from karat.tables import Corpus


def refuse_short(form: str, scores: Scores, corpus: Corpus | None = None) -> None:
    """Refuse a log of fewer hits a query than are measured, where a list may go on below it.

    Only karat's own logs surely mean by k what is meant here. A shorter list was all there is.
    """
    asked = scores.meta.get("k")
    if not isinstance(asked, int) or "run_digest" not in scores.meta or scores.trace is None:
        return
    if corpus is not None and corpus.frame.height <= asked:
        return
    ranked, conventions = scores.trace.ranked, scores.conventions
    looked = np.minimum(ranked.target.own_k, conventions.depth or ranked.target.own_k)
    # A repeat that was dropped took a place of what was asked for.
    dropped = scores.counts.repeats if conventions.repeats == "drop" else 0
    full = ranked.returned + dropped >= asked
    short = (scores.status == "scored").to_numpy() & full & (looked > asked)
    if short.any():
        row = int(np.argmax(np.where(short, looked, 0)))
        k, query_id = int(looked[row]), scores.table["query_id"][row]
        own = "" if k == conventions.k else " (the k of the query)"
        raise UsageError(
            f"output {form}: {scores.system} was asked for {asked:,} hits a query, and "
            f"{query_id!r} is measured at {k:,}{own}; set the system's k to {k:,} and search "
            f"again, or measure at {asked:,}: settings: {{k: {asked}}}, --set k={asked}"
        )
