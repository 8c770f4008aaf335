"""What a corpus says of the gold: whether it is there, where it belongs, how old it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from karat.analysis.failures.gold_ranks import ranked_of
from karat.analysis.staged import Staged
from karat.measures.prepare import Prepared
from karat.measures.ranked import Mask


def known_to_corpus(gold: Prepared) -> Mask | None:
    """Which judgments are of something that the corpus has; None without a corpus."""
    if gold.corpus is None:
        return None
    known = gold.corpus[_key(gold)].unique()
    return gold.rows["item_id"].is_in(known.implode()).to_numpy()


def in_index(staged: Staged) -> Mask | None:
    """Which judgments are of something that can be found; None without a corpus.

    What any list holds can be found, whatever the corpus file says.
    """
    known = known_to_corpus(staged.gold)
    if known is None:
        return None
    known = known.copy()
    for scores in (staged.final, *staged.line.values(), *staged.beside.values()):
        found = ranked_of(scores).found
        if found.row is not None:
            known[found.row] = True
    return known


def attributes(gold: Prepared, rows: Iterable[int], name: str) -> dict[int, list[str | None]]:
    """What the corpus has in a column for the items behind some judgments, by judgment's row.

    An item without a value brings None; one with a list of values brings them all.
    """
    if gold.corpus is None or name not in gold.corpus.columns:
        return {}
    wanted = pl.Series("at", list(rows), dtype=pl.Int64)
    own = pl.DataFrame({"at": wanted, "key": gold.rows["item_id"].gather(wanted)})
    facts = gold.corpus.select(key=pl.col(_key(gold)), told=pl.col(name))
    facts = facts.join(own, on="key", how="semi", maintain_order="left")
    if facts.schema["told"].base_type() == pl.List:
        facts = facts.explode("told")
    facts = facts.with_columns(pl.col("told").cast(pl.String))
    told: dict[int, list[str | None]] = {}
    both = own.join(facts, on="key", maintain_order="left_right").select("at", "told")
    for at, value in both.rows():
        told.setdefault(at, []).append(value)
    return told


def relevant_rows(gold: Prepared, query: int) -> list[int]:
    """The rows of a query's judgments that make up its gold."""
    rows = np.arange(gold.first[query], gold.first[query + 1])
    kept: list[int] = rows[gold.grade[rows] >= gold.conventions.rel].tolist()
    return kept


def names_of(gold: Prepared, rows: Sequence[int]) -> list[str]:
    """What some judgments are of, as one would write it."""
    judged = gold.rows[list(rows)]
    if "start" in judged.columns:
        judged = judged.select(item_id=pl.format("{}:{}-{}", "item_id", "start", "end"))
    return judged["item_id"].to_list()


def _key(gold: Prepared) -> str:
    """What the corpus calls the things that are judged."""
    return "item_id" if gold.conventions.level == "item" else "doc_id"
