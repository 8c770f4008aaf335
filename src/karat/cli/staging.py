"""From run logs to what each of their stages is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from karat.analysis.staged import KEEP, RAW, Staged, stage_names, with_raw
from karat.analysis.stages.cuts import LINKING, Cuts, fair_cut, reach_of
from karat.analysis.stages.effects import effect_of, raw_of, steps_of
from karat.analysis.stages.parts import parts_of
from karat.analysis.stages.rewriting import linking_of, missing_for_rewriting, rewriting_of
from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.analysis.verdicts import Rule
from karat.cli.analysing import subject_of
from karat.cli.numbers import whole
from karat.cli.scoring import Ready, Request, ready
from karat.errors import UsageError
from karat.measures.names import Measure
from karat.measures.prepare import Prepared
from karat.measures.results import Scores
from karat.measures.scores import score
from karat.reports.pages import Paper
from karat.reports.stages import stages_page
from karat.tables import Blocks, Run

NO_RAW = (
    "the log has no list before the later stages, or only empty ones; log the retriever's own list"
    " as raw, and those of other stages under stages"
)
NO_PARTS = "the log has no part's list; a fusion logs each part's under stages, by its name"


def stages_of(request: Request, *, k: str, depth: str) -> Paper:
    """Score every run stage by stage and look into each."""
    top, deep = whole("-k", k), whole("--depth", depth)
    given = ready(request)
    chosen = (
        given.measures
        if request.measures
        else [Measure(name, top) for name in ("nDCG", "P", "R", "RR")]
    )
    for one in chosen:
        if one.definition.cutoff == "path" or one.name == "EL_F1":
            raise UsageError(f"{one} is a figure of calls, not of lists; leave it out")
    top = max([one.k for one in chosen if isinstance(one.k, int)], default=top)
    cuts = Cuts(tuple(chosen), top, deep)

    def pair(runs: Sequence[Run | Blocks]) -> Run | None:
        return raw_and_final(runs, given.prepared)

    subject = subject_of(request, cuts.every, keep=max(top, KEEP), given=given, pair=pair)
    systems = [
        {"name": name, **_looked_into(staged, cuts, given)} for name, staged in subject.runs.items()
    ]
    return subject.paper({"systems": systems}, stages_page)


def raw_and_final(runs: Sequence[Run | Blocks], gold: Prepared) -> Run | None:
    """Return two runs as the stages of one, None where they are not raw and final lists.

    Raw lists that do not fit the gold are refused under the name of their own file.
    """
    if len(runs) != 2:
        return None
    raw, final = (one.read() for one in runs)
    if stage_names(final):
        return None
    score(raw, gold, ())
    return with_raw(final, raw)


def _looked_into(staged: Staged, cuts: Cuts, given: Ready) -> dict[str, Any]:
    rule = Rule()
    effect = effect_of(staged, cuts, rule, queries=given.queries, by=given.by)
    parts = parts_of(staged, cuts)
    routing = routing_of(staged, given.queries, cuts.recall)
    rewriting = rewriting_of(staged, cuts, rule, given.queries)
    linking, unlinked = linking_of(staged)
    lacks = {
        RAW: None if RAW in staged.line else NO_RAW,
        "parts": None if parts is not None else NO_PARTS,
        "router": missing_for_routing(routing),
        "rewriting": missing_for_rewriting(rewriting),
        "entities": unlinked,
        **_lacks(staged.final),
    }
    return {
        "depth": _depth(staged, cuts),
        "raw": raw_of(staged, cuts),
        "effect": None if effect is None else effect.document(),
        "stages": [step.document() for step in steps_of(staged, cuts, rule)],
        "parts": None if parts is None else parts.document(),
        "router": None if routing is None else routing.document(),
        "rewriting": None if rewriting is None else rewriting.document(),
        "entities": None if linking is None else linking.document(),
        "lacks": {name: text for name, text in lacks.items() if text is not None},
    }


def _lacks(final: Scores) -> dict[str, str]:
    """What measures lack, but for longer lists: how deep one looked is told by itself."""
    passed = {str(LINKING), *(() if final.cut is None else final.cut.beyond)}
    return {name: text for name, text in final.lacks.items() if name not in passed}


def _depth(staged: Staged, cuts: Cuts) -> dict[str, Any]:
    """How deep raw lists were looked at, and how many queries have none of their own."""
    final = staged.logged.get("final", frozenset())
    own = staged.logged.get(RAW, frozenset())
    asked = {*staged.gold.query_ids}
    return {
        **reach_of(staged, [staged.raw], cuts.depth).document(),
        "raw": staged.depth(staged.raw).longest if RAW in staged.line else None,
        "final": staged.depth(staged.final).longest,
        "without_raw": len((final - own) & asked) if RAW in staged.line else None,
        "k": fair_cut(staged, cuts.k).document(),
    }
