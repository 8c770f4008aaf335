"""What each stage of a system is worth: retriever, reranker, fusion, router, rewriting, linking.

``effects`` compares stages, ``routing`` has routers, rewriting and entity linking; the parts of a
fusion are here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.analysis.runs import Analysis, stage_runs
from karat.analysis.stages.effects import (
    LINKING,
    Cuts,
    Reach,
    cells,
    cut_at,
    cuts_to,
    effect_of,
    fair_cut,
    only_where,
    raw_of,
    reach_of,
    steps_of,
)
from karat.analysis.stages.page import stages_page
from karat.analysis.stages.routing import (
    chosen_sources,
    linking_of,
    missing_for_rewriting,
    missing_for_routing,
    rewriting_of,
    routing_of,
)
from karat.data.tables import Blocks, Run
from karat.errors import UsageError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.stages import KEEP, ORIGINAL, RAW, Staged, stage_names, with_raw
from karat.evaluation.verdict import Rule
from karat.measures.names import Measure, parse_measures
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask
from karat.measures.score_builder import score
from karat.measures.scores import Scores
from karat.pages.serialize import Record

NO_RAW = (
    "the log has no list before the later stages, or only empty ones; log the retriever's own list"
    " as raw, and those of other stages under stages"
)
NO_PARTS = "the log has no part's list; a fusion logs each part's under stages, by its name"

Cells = Mapping[str, Mapping[str, Any]]


class Stages(Analysis):
    """What each stage of one or several systems is worth."""


def stages(
    evaluation: Evaluation,
    *runs: Any,
    measures: Sequence[str] | None = None,
    k: int = 5,
    depth: int = 50,
) -> Stages:
    """Compare each stage that a log holds with the one before, query by query.

    By ``measures``, the first of which decides; nDCG, P, R and RR at ``k`` unless named. Raw lists
    are searched for gold to ``depth``. Of two runs, the second of which logs no earlier lists, the
    first is taken for the raw lists of the second.
    """
    conventions = evaluation.prepared.conventions
    chosen = [Measure(name, k) for name in ("nDCG", "P", "R", "RR")]
    if measures:
        chosen = parse_measures(list(measures), conventions=conventions)
    for measure in chosen:
        if measure.definition.cutoff == "path" or measure.name == "EL_F1":
            raise UsageError(f"{measure} is a figure of calls, not of lists; leave it out")
    top = max([measure.k for measure in chosen if isinstance(measure.k, int)], default=k)
    cuts = Cuts(tuple(chosen), top, depth)
    staged_runs = stage_runs(
        evaluation,
        runs,
        cuts.every,
        keep=max(top, KEEP),
        pair=lambda opened: raw_and_final(opened, evaluation.prepared),
    )
    systems = [
        {"name": name, **_system(staged, cuts, evaluation)}
        for name, staged in staged_runs.systems.items()
    ]
    return staged_runs.result(Stages, {"systems": systems}, stages_page)


def raw_and_final(runs: Sequence[Run | Blocks], gold: Prepared) -> Run | None:
    """Return two runs as the stages of one, None if they are not raw and final lists.

    Raw lists that do not fit the gold are refused under the name of their own file.
    """
    if len(runs) != 2:
        return None
    raw, final = (run.read() for run in runs)
    if stage_names(final):
        return None
    score(raw, gold, ())
    return with_raw(final, raw)


def _system(staged: Staged, cuts: Cuts, evaluation: Evaluation) -> dict[str, Any]:
    rule, queries = Rule(), evaluation.queries
    effect = effect_of(staged, cuts, rule, queries=queries, by=evaluation.by)
    parts = parts_of(staged, cuts)
    routing = routing_of(staged, queries, cuts.recall)
    rewriting = rewriting_of(staged, cuts, rule, queries)
    linking, unlinked = linking_of(staged)
    final = staged.final
    # Measures that only lack longer lists are reported with the depth.
    known = {str(LINKING), *(() if final.cut is None else final.cut.beyond)}
    lacks = {
        RAW: None if RAW in staged.line else NO_RAW,
        "parts": None if parts is not None else NO_PARTS,
        "router": missing_for_routing(routing),
        "rewriting": missing_for_rewriting(rewriting),
        "entities": unlinked,
        **{name: reason for name, reason in final.lacks.items() if name not in known},
    }
    return {
        "depth": _depth(staged, cuts),
        "raw": raw_of(staged, cuts),
        "effect": effect and effect.to_dict(),
        "stages": [step.to_dict() for step in steps_of(staged, cuts, rule)],
        "parts": parts and parts.to_dict(),
        "router": routing and routing.to_dict(),
        "rewriting": rewriting and rewriting.to_dict(),
        "entities": linking and linking.to_dict(),
        "lacks": {name: reason for name, reason in lacks.items() if reason is not None},
    }


def _depth(staged: Staged, cuts: Cuts) -> dict[str, Any]:
    """Return how deep raw lists were searched, and how many queries have no raw list."""
    final = staged.logged.get("final", frozenset())
    raw = staged.logged.get(RAW, frozenset())
    scored = {*staged.gold.query_ids}
    return {
        **reach_of(staged, [staged.raw], cuts.depth).to_dict(),
        "raw": staged.depth(staged.raw).longest if RAW in staged.line else None,
        "final": staged.depth(staged.final).longest,
        "without_raw": len((final - raw) & scored) if RAW in staged.line else None,
        "k": fair_cut(staged, cuts.k).to_dict(),
    }


@dataclass(frozen=True, eq=False)
class Part(Record):
    """One list of those that were fused; ``within`` names the part that it is a list of.

    ``found`` counts the gold that it holds, ``alone`` what no other part holds, of the queries
    that several parts were asked; None for a list within a part.
    """

    measures: Cells
    queries: int
    found: int
    within: str | None = None
    alone: int | None = None


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts beside the list that was made of them, all looked at equally deep.

    ``gold`` counts all there is to find, ``together`` what any part holds, ``lost`` what a part
    holds and the fused list does not.
    """

    reach: Reach
    fused: Part
    parts: Mapping[str, Part]
    gold: int
    together: int
    lost: int

    def to_dict(self) -> dict[str, Any]:
        """Return the parts as plain data."""
        return {
            "depth": self.reach.to_dict(),
            "fused": self.fused.to_dict(),
            "parts": {name: part.to_dict() for name, part in self.parts.items()},
            "gold": self.gold,
            "together": self.together,
            "lost": self.lost,
        }


def parts_of(staged: Staged, cuts: Cuts) -> Parts | None:
    """Return each part beside the fused list; None where the log has none."""
    lists = _in_order({name: one for name, one in staged.beside.items() if name != ORIGINAL})
    if not lists:
        return None
    outer = [name for name in lists if _within(name, lists) is None]
    reach = reach_of(staged, [staged.raw, *(lists[name] for name in outer)], cuts.depth)
    asked = {name: _asked(staged, name, lists) for name in lists}
    held = {name: _held(hits, reach.used, asked[name]) for name, hits in lists.items()}
    alone = _alone(staged, [held[name] for name in outer], [asked[name] for name in outer])
    everyone = np.ones(len(staged.gold.query_ids), dtype=bool)
    in_fused = _held(staged.raw, reach.used, everyone)
    in_parts = np.unique(np.concatenate([held[name] for name in outer]))
    parts = {
        name: Part(
            _measured(staged, hits, cuts, reach, asked[name]),
            queries=int(asked[name].sum()),
            found=len(held[name]),
            within=_within(name, lists),
            alone=dict(zip(outer, alone, strict=True)).get(name),
        )
        for name, hits in lists.items()
    }
    return Parts(
        reach,
        Part(
            _measured(staged, staged.raw, cuts, reach, everyone),
            queries=len(everyone),
            found=len(in_fused),
        ),
        parts,
        gold=int((staged.gold.grade >= staged.gold.conventions.rel).sum()),
        together=len(in_parts),
        lost=len(np.setdiff1d(in_parts, in_fused)),
    )


def _in_order(lists: Mapping[str, Scores]) -> dict[str, Scores]:
    """Return each part before the lists within it."""
    order: list[str] = []
    for name in lists:
        inside = _within(name, lists)
        around = [] if inside is None else [inside]
        order += [one for one in (*around, name) if one not in order]
    return {name: lists[name] for name in order}


def _within(name: str, lists: Collection[str]) -> str | None:
    """Return the part whose own list it is: ``hybrid.bm25`` is one of ``hybrid``."""
    around = [other for other in lists if name.startswith(f"{other}.")]
    return max(around, key=len, default=None)


def _asked(staged: Staged, name: str, lists: Collection[str]) -> Mask:
    """Return the queries that a part was asked: all, unless a router chose among the parts."""
    inside = _within(name, lists)
    own = _short(name, inside)
    siblings = {_short(other, inside) for other in lists if _within(other, lists) == inside}
    chosen = chosen_sources(staged)
    here = np.array([own in some or not siblings & {*some} for some in chosen], dtype=bool)
    return here if inside is None else here & _asked(staged, inside, lists)


def _short(name: str, inside: str | None) -> str:
    return name if inside is None else name.removeprefix(f"{inside}.")


def _measured(
    staged: Staged, scores: Scores, cuts: Cuts, reach: Reach, asked: Mask
) -> dict[str, dict[str, Any]]:
    wanted = {measure: measure for measure in cuts.chosen} | cuts_to(cuts.deep[:1], reach.used)
    return cells(only_where(cut_at(scores, staged.gold, wanted), asked))


def _held(scores: Scores, k: int, asked: Mask) -> Ints:
    """Return the gold in the top k of some lists, by its place among all judgments."""
    if scores.trace is None:
        return np.empty(0, dtype=np.int64)
    ranked = scores.trace.ranked
    found = ranked.found
    mask = ranked.top_found(k) & found.relevant(scores.conventions.rel) & asked[found.query]
    rows = np.zeros(len(mask), dtype=np.int64) if found.row is None else found.row
    return np.unique(rows[mask])


def _alone(staged: Staged, held: list[Ints], asked: list[Mask]) -> list[int]:
    """Return how much gold each part holds that no other does, where several were asked."""
    several = np.sum(asked, axis=0) > 1
    owner = staged.gold.rows["code"].to_numpy()
    times = np.zeros(len(owner), dtype=np.int64)
    for rows in held:
        times[rows] += 1
    return [int(((times[rows] == 1) & several[owner[rows]]).sum()) for rows in held]
