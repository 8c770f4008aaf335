"""Next judgments: labels that best settle a comparison of two runs or narrow one measure's range.

A candidate is an unjudged pair: how likely it is relevant, and how much that would change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.columns import IN_MEMORY
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import UsageError
from karat.evaluation.bounds import stability_of
from karat.evaluation.report_text import counts_lines
from karat.evaluation.verdict import NO_DIFFERENCE, Rule
from karat.label.inputs import (
    PAIR,
    CorpusLike,
    GoldLike,
    QueriesLike,
    RunLike,
    Settings,
    as_list,
    conventions_for,
    corpus_table,
    gold_tables,
    judged_pairs,
    queries_table,
    refuse_repeats,
    refuse_two_pipes,
    runs_by_name,
)
from karat.label.pool import PairsToJudge, refuse_level, shuffled, with_texts
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.conventions import PROFILES, SETTABLE, Conventions
from karat.measure.evaluate_measure import why_unbounded
from karat.measure.judgment_effects import Effects, effects
from karat.measure.names import Measure, parse_measures
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranges import ABSENT, Listed, difference_range, listed, range_of
from karat.measure.ranked import Ints
from karat.measure.score_builder import score
from karat.measure.scores import Scores, number_of
from karat.pages.formatting import (
    NOTHING,
    change,
    figure,
    interval,
    label,
    number_range,
    p_value,
    percent,
    plural,
)
from karat.pages.page import Grid, Page, Section, table

# The last rank of each band but the last, and how likely an item of each band is relevant as
# long as nobody has judged any.
BANDS = (1, 3, 5, 10, 20, 50)
PRIOR = (0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)
# The prior weighs as much as this many judgments.
STRENGTH = 4.0
# Changes below this are rounding errors.
ROUNDING = 1e-12
# The reported fields of each pair to judge; with one run there is no second rank.
_NEXT = [
    *("item_id", "first_rank", "second_rank", "chance"),
    *("effect", "effect_top", "effect_least", "expected"),
]
_WHOLE_LISTS = 1 << 31
_NO_GOLD = ("query without relevant gold counts", "queries without relevant gold count")


def next_judgments(
    runs: Mapping[str, RunLike] | Sequence[RunLike] | RunLike,
    *,
    gold: GoldLike | Sequence[GoldLike] = (),
    measure: str | None = None,
    margin: float | None = None,
    margin_kind: str | None = None,
    within: float | None = None,
    count: int = 20,
    depth: int | None = None,
    queries: QueriesLike | None = None,
    corpus: CorpusLike | None = None,
    profile: str | Conventions = "karat",
    settings: Settings | None = None,
    run_format: str | None = None,
    gold_format: str | None = None,
    strict: bool = False,
) -> NextJudgments:
    """Choose the most informative pairs to judge about two runs, or about one.

    For two runs (the baseline and the other system) it says whether labels can still change the
    verdict under ``margin``. For one run it says how far labels can still move the measure;
    ``within`` is the width at which to stop. ``gold`` may be several files; the first judgment
    of a pair counts. ``depth`` limits the choice to the first items of each list.

    >>> result = next_judgments({"a": {"q": ["x", "y"]}}, gold={"q": {"y": 1}}, measure="P@2")
    >>> result.settled, result.to_frame()["item_id"].to_list()
    (False, ['x'])
    """
    named = list(runs.values()) if isinstance(runs, Mapping) else as_list(runs)
    golds = as_list(gold)
    if not 1 <= len(named) <= 2:
        raise UsageError("next takes one run, or two: the baseline and the other system")
    for_two = {"--margin": margin, "--margin-kind": margin_kind}
    for option, value in {"--within": within, **for_two}.items():
        if value is not None and (option in for_two) is (len(named) == 1):
            number = "two runs" if option in for_two else "one run"
            raise UsageError(f"{option} is for {number}")
    refuse_repeats("--gold ", golds)
    refuse_two_pipes(*named, *golds, queries, corpus)
    kind: Any = margin_kind or "relative"
    rule = Rule(margin=0.02 if margin is None else margin, margin_kind=kind)
    conventions = conventions_for(profile, settings, SETTABLE, "next")
    refuse_level(conventions)
    name = measure or PROFILES[conventions.profile].measures[0]
    chosen, *more = parse_measures([name], conventions=conventions)
    if more:
        raise UsageError(f"-m {name}: next takes one measure at a time")
    if number_of(chosen) is not aggregates.mean:
        raise UsageError(f"{chosen} is not a mean over queries; name a measure that is")
    tables = runs_by_name(runs, format=run_format, strict=strict)
    query_table = queries_table(queries, golds, gold_format=gold_format)
    if not golds and query_table is None:
        raise UsageError("give the judgments so far (--gold), or the --queries if there are none")
    judged = gold_tables(golds, format=gold_format, duplicates=conventions.duplicates)
    ids = [] if query_table is None else query_table.frame["query_id"].to_list()
    merged, again, differently = merge_gold(judged, ids)
    texts = corpus_table(corpus)
    scored = _scored(tables, merged, query_table, texts, conventions, chosen)
    one_run = len(scored.scores) == 1
    state = scored.mean_range(within or 0.0) if one_run else scored.verdict(rule)
    state |= scored.choose(0 if state["settled"] else count, depth)
    body = {
        "systems": [
            {"name": scores.system, "counts": asdict(scores.counts), "partial": scores.partial}
            for scores in scored.counted
        ],
        "cannot_tell": _cannot_tell(scored.counted),
        "measure": str(chosen),
        "better": chosen.definition.better,
        "depth": depth,
        "count": count,
        "without_gold": scored.without_gold,
        "judged_again": again,
        "judged_differently": differently,
        **state,
    }
    inputs = {
        "runs": [run.source for run in tables.values()],
        "gold": [table.source for table in judged],
        "queries": None if query_table is None else query_table.source,
        "corpus": None if texts is None else texts.source,
    }
    chosen_pairs = pl.DataFrame(state["next"], schema=dict.fromkeys(PAIR, pl.String))
    pairs = with_texts(shuffled(chosen_pairs, conventions.seed), query_table, texts)
    return NextJudgments(body, conventions.document(), _next_page, inputs, pairs=pairs)


class NextJudgments(PairsToJudge):
    """The pairs to judge next, shuffled, and whether judging can still change anything."""

    @property
    def settled(self) -> bool:
        """Whether no label can change the verdict, or move the measure far enough."""
        return bool(self.body["settled"])

    @property
    def unmeasured(self) -> str | None:
        """Why a run could not be measured; None if it could."""
        because: str | None = self.body["cannot_tell"]
        return because

    def to_frame(self) -> pl.DataFrame:
        """Return the pairs to judge, the most informative first."""
        return pl.DataFrame(self.body["next"], infer_schema_length=None)


def _scored(
    runs: Mapping[str, Run | Blocks],
    gold: Gold,
    queries: Queries | None,
    corpus: Corpus | None,
    conventions: Conventions,
    measure: Measure,
) -> _ScoredRuns:
    """Score every run; a query without relevant gold counts if a judgment may bring some."""

    def scores_on(prepared: Prepared) -> list[Scores]:
        return [
            replace(score(run, prepared, [measure], keep=_WHOLE_LISTS), system=name)
            for name, run in runs.items()
        ]

    # Lists are scored as long as they are: what they hold can be judged.
    conventions = replace(conventions, short_lists="complete")
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    why = why_unbounded(measure, prepared)
    if why is not None:
        raise UsageError(f"next does not know what a judgment changes: {why}")
    counted = scores = scores_on(prepared)
    lists = [listed(run) for run in scores]
    unscored = np.isnan([run.values(str(measure)) for run in scores]).any(axis=0)
    unjudged = np.sum([run.unjudged.counts(len(prepared.query_ids)) for run in lists], axis=0)
    empty = unscored & (scores[0].status == "empty_gold")
    opened = empty & (unjudged > 0)
    if opened.any():
        # Queries without an answer, or with nothing left to judge, stay out.
        out = (scores[0].status == "no_answer") | (empty & ~opened)
        ids = pl.Series("query_id", prepared.query_ids, dtype=pl.String).filter(pl.Series(~out))
        if queries is not None:
            queries = replace(queries, frame=queries.frame.filter(pl.Series(~out)))
        frame = gold.frame.filter(pl.col("query_id").is_in(ids.implode()))
        gold = Gold(frame, tuple(ids), gold.source)
        conventions = replace(conventions, empty_gold="zero")
        prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
        scores = scores_on(prepared)
        lists = [listed(run) for run in scores]
    return _ScoredRuns(measure, prepared, counted, scores, lists, int(opened.sum()))


@dataclass(frozen=True, eq=False)
class _ScoredRuns:
    """One run or two, scored under conventions that let every judgment count.

    ``counted`` are the scores as any other command has them. ``without_gold`` counts the queries
    that have no relevant gold yet and count all the same.
    """

    measure: Measure
    prepared: Prepared
    counted: Sequence[Scores]
    scores: Sequence[Scores]
    lists: Sequence[Listed]
    without_gold: int

    def verdict(self, rule: Rule) -> dict[str, Any]:
        """Return the verdict on two runs, and whether labels could change it."""
        first, second = self.lists
        ends = difference_range(self.measure, first, second, self.prepared)
        baseline = range_of(self.measure, first, self.prepared)
        first_scores, second_scores = self.scores
        state = stability_of(
            first_scores, second_scores, ends, rule, str(self.measure), baseline=baseline
        )
        if self.without_gold and state.settled and state.now not in ("better", "worse"):
            # Queries judged to have nothing relevant leave the mean, which may change the verdict.
            many = plural(self.without_gold, *_NO_GOLD)
            because = f"the verdict is {state.now} while {many} as having none; judge there"
            state = replace(state, settled=False, because=because)
        names = ("baseline", "system", "n", "baseline_mean", "system_mean", "delta", "ci", "p")
        row = state.comparison.to_dict()
        comparison = {name: row[name] for name in (*names, "margin", "because")}
        return state.to_dict() | {"comparison": comparison}

    def mean_range(self, within: float) -> dict[str, Any]:
        """Return the mean of one run, and the ends between which labels could move it."""
        ends = range_of(self.measure, self.lists[0], self.prepared)
        values = self.scores[0].values(str(self.measure))
        low, now, high = (
            aggregates.mean(column[~np.isnan(column)]) for column in (ends.low, values, ends.high)
        )
        width = None if low is None or high is None else high - low
        n = int((~np.isnan(values)).sum())
        return {
            "range": {"mean": now, "low": low, "high": high, "within": within, "n": n},
            "settled": width is None or width <= within + NO_DIFFERENCE,
            # A query judged to have nothing relevant leaves the mean, which may rise by that.
            "exact": ends.exact and not self.without_gold,
        }

    def choose(self, count: int, depth: int | None) -> dict[str, Any]:
        """Count the unjudged pairs and those that could matter, and choose the next ones."""
        two = len(self.lists) == 2
        pairs = effects(self.measure, self.lists, self.prepared)
        has_value = ~np.isnan([run.values(str(self.measure)) for run in self.scores]).any(axis=0)
        rel = float(self.measure.arguments.get("rel", self.prepared.conventions.rel))
        unjudged = candidates(pairs, judged_items(self.scores, rel), int(has_value.sum()))
        near = unjudged
        if depth is not None:
            near = unjudged.filter(pl.min_horizontal("first_rank", "second_rank") <= depth)
        ids = pl.Series(self.prepared.query_ids, dtype=pl.String)
        chosen = most_informative(near, count, sides=two)
        columns = [name for name in _NEXT if two or name != "second_rank"]
        rows = chosen.select(ids.gather(chosen["query"]).alias("query_id"), *columns)
        return {
            "unjudged": unjudged.height,
            "can_matter": int(unjudged["can_matter"].sum()),
            "within_depth": int(near["can_matter"].sum()),
            "next": rows.to_dicts(),
        }


def merge_gold(files: Sequence[Gold], query_ids: Sequence[str] = ()) -> tuple[Gold, int, int]:
    """Return all judgments; if several files judge a pair, the first one counts.

    The numbers are those of the judgments of pairs that an earlier file had judged, and of those
    among them with another grade. A grade below 0 is no judgment, so a later file may bring one.
    Without any file there are the queries of ``query_ids``, and nothing is judged.

    >>> files = [Gold.from_dict({"q": {"a": 2}}), Gold.from_dict({"q": {"a": 0, "b": 1}})]
    >>> gold, again, differently = merge_gold(files)
    >>> gold.frame.rows(), again, differently
    ([('q', 'a', 2.0), ('q', 'b', 1.0)], 1, 1)
    """
    schema = dict.fromkeys(PAIR, pl.String) | {"grade": pl.Float64}
    judged = (judged_pairs(file).select(*PAIR, "grade") for file in files)
    rows = pl.concat([pl.DataFrame(schema=schema), *judged])
    first = rows.unique(PAIR, keep="first", maintain_order=True)
    before = rows.join(first, on=PAIR, how="left", suffix="_before")
    differently = int((before["grade"] != before["grade_before"]).sum())
    ids = [query for file in files for query in file.query_ids] if files else query_ids
    source = files[0].source if files else IN_MEMORY
    gold = Gold(first, tuple(dict.fromkeys(ids)), source=source)
    return gold, rows.height - first.height, differently


def judged_items(scores: Sequence[Scores], rel: float) -> pl.DataFrame:
    """Return what is judged in the lists of one or two runs, each pair once.

    ``first`` and ``second`` are its ranks, ABSENT where a list lacks it.
    """
    schema = {"row": pl.Int64, "item_id": pl.String, "grade": pl.Float64}
    sides = [pl.DataFrame(schema=schema | dict.fromkeys(("first", "second"), pl.Int64))]
    for name, run in zip(("first", "second"), scores, strict=False):
        if run.lists is not None:
            judged = run.lists.filter(pl.col("grade") >= 0)
            sides.append(judged.select("row", "item_id", "grade", pl.col("rank").alias(name)))
    pairs = pl.concat(sides, how="diagonal_relaxed").group_by("row", "item_id").max()
    return pairs.sort("row", "item_id").select(
        pl.col("first", "second").fill_null(ABSENT), relevant=pl.col("grade") >= rel
    )


def chances(first: Ints, second: Ints, judged: pl.DataFrame) -> Values:
    """Return each item's chance to be relevant, from what was judged at such ranks.

    Items are grouped by the band of their better rank and by whether both runs return them. A
    group's chance is its share of relevant items among the judged, with a prior that falls with
    the rank and weighs as much as four judgments. Gold that holds only relevant items says nothing
    about chances, so the prior is used alone.

    >>> chances(np.array([1, 2, 60]), np.array([1, ABSENT, ABSENT]), judged_items([], 1)).tolist()
    [0.4, 0.3, 0.02]
    """
    prior = np.repeat(PRIOR, 2)
    is_relevant = judged["relevant"].to_numpy()
    if is_relevant.all():
        return prior[_groups(first, second)]
    groups = _groups(judged["first"].to_numpy(), judged["second"].to_numpy())
    judged_counts = np.bincount(groups, minlength=len(prior))
    relevant = np.bincount(groups[is_relevant], minlength=len(prior))
    share: Values = (relevant + STRENGTH * prior) / (judged_counts + STRENGTH)
    return share[_groups(first, second)]


def _groups(first: Ints, second: Ints) -> Ints:
    """Return the number of each item's group: two per band, for one run and for both."""
    band = np.searchsorted(BANDS, np.minimum(first, second))
    return 2 * band + (np.maximum(first, second) < ABSENT)


def candidates(pairs: Effects, judged: pl.DataFrame, queries: int) -> pl.DataFrame:
    """Return the unjudged pairs that could change the mean over this many queries.

    ``effect`` is the change of the mean if the item is relevant, half way between what the
    highest and the lowest relevant grade do, and ``expected`` its size times the chance.
    ``spread`` is the standard deviation of the change, by which pairs are chosen: it is 0 both
    for what cannot matter and for what is known beforehand. ``favour`` is above 0 for pairs that
    favour the second run. A pair whose query has no value is left out: no label would give it one.
    """
    queries = max(queries, 1)
    chance = chances(pairs.first, pairs.second, judged)
    size = pl.col("effect").abs()
    ranks = {
        name: pl.Series(ranks).replace(ABSENT, None)
        for name, ranks in (("first_rank", pairs.first), ("second_rank", pairs.second))
    }
    return (
        pl.DataFrame(
            {
                "query": pairs.query,
                "item_id": pairs.item_id,
                **ranks,
                "chance": chance,
                "effect": (pairs.top + pairs.least) / 2 / queries,
                "effect_top": pairs.top / queries,
                "effect_least": pairs.least / queries,
                "favour": chance * pairs.alone,
            }
        )
        .filter(pl.col("effect").is_not_nan())
        .with_columns(
            expected=pl.col("chance") * size,
            spread=(pl.col("chance") * (1 - pl.col("chance"))).sqrt() * size,
            can_matter=size > ROUNDING / queries,
        )
    )


def most_informative(pairs: pl.DataFrame, count: int, *, sides: bool) -> pl.DataFrame:
    """Return the candidates to judge next, the most informative first.

    With ``sides`` the choice alternates between pairs that favour either system: next comes
    the side with the smaller expected gain so far. Which side a pair favours follows from its
    ranks alone. The effect depends on the judgments so far, so choosing sides by it would
    have more of the leader's items judged and increase its lead.
    """
    order = pairs.filter("can_matter").sort("spread", descending=True, maintain_order=True)
    return order[_alternate(order["favour"].to_list(), count)] if sides else order.head(count)


def _alternate(favour: Sequence[float], count: int) -> list[int]:
    """Return the positions of ``count`` pairs, alternating so that both sides gain alike.

    A pair that favours neither side keeps its place in the order.
    """
    waiting: dict[int, deque[int]] = {-1: deque(), 0: deque(), 1: deque()}
    for at, gain in enumerate(favour):
        waiting[_sign(gain)].append(at)
    taken: list[int] = []
    balance = 0.0
    while len(taken) < min(count, len(favour)):
        turn = [0, -_sign(balance)] if _sign(balance) else [*waiting]
        able = [side for side in turn if waiting[side]] or [w for w in waiting if waiting[w]]
        taken.append(waiting[min(able, key=lambda side: waiting[side][0])].popleft())
        balance += favour[taken[-1]]
    return taken


def _sign(gain: float) -> int:
    return 0 if abs(gain) <= ROUNDING else 1 if gain > 0 else -1


def _cannot_tell(scores: Sequence[Scores]) -> str | None:
    """Return why a run could not be measured: it hardly answered."""
    runs = [(label(run.system), run.counts) for run in scores if not run.counts.scored]
    silent = [name for name, n in runs if n.missing + n.failed_calls >= n.queries]
    if silent:
        return f"no query of {' and '.join(silent)} could be scored"
    partial = [label(run.system) for run in scores if run.partial]
    return f"too many calls of {' and '.join(partial)} failed" if partial else None


def _next_page(results: Mapping[str, Any]) -> Page:
    sections = [Section("What labels could change", _state_grid(results))]
    if results["next"]:
        sections.append(Section("To judge next", _pairs_grid(results)))
    return Page("What to judge next", [*_headline(results)], sections, [*_notes(results)])


def _headline(results: Mapping[str, Any]) -> Iterator[str]:
    unjudged, depth, state = results["unjudged"], results["depth"], _state(results)
    if "comparison" in results:
        yield results["comparison"]["because"]
    if results["cannot_tell"] is not None:
        yield f"cannot tell: {results['cannot_tell']}; fix that first, then choose what to judge"
    elif not unjudged:
        yield f"nothing is left to judge: {state}"
    elif results["settled"]:
        yield f"stop: {state} however {plural(unjudged, 'other pair is', 'other pairs are')} judged"
    elif results["next"]:
        chosen = plural(len(results["next"]), "pair")
        yield f"judge {chosen} next, of {unjudged:,} unjudged: {state}"
    else:
        where = "" if depth is None else f" in the top {depth:,} of a list"
        yield f"no single judgment{where} would change anything: {state}"


def _state(results: Mapping[str, Any]) -> str:
    """Return the verdict or the range of the measure, now or as labels could make it."""
    final = results["settled"] or not results["unjudged"]
    if "comparison" not in results:
        ends = results["range"]
        if ends["mean"] is None:
            return f"{results['measure']} has no value"
        reach = number_range(figure(ends["low"]), figure(ends["high"]))
        return f"{results['measure']} {'is' if final else 'could still be'} {reach}"
    if final:
        return f"the verdict is {results['now'] or 'none'}"
    if results["now"] == results["at_worst"] == results["at_best"]:
        return str(results["because"])
    return (
        f"the verdict could still be {results['at_worst']} under the worst labels,"
        f" {results['at_best']} under the best"
    )


def _state_grid(results: Mapping[str, Any]) -> Grid:
    counts = [f"{results[name]:,}" for name in ("unjudged", "can_matter")]
    if "comparison" not in results:
        header = ["system", results["measure"], "lowest", "highest", "unjudged", "can matter"]
        cells = [figure(results["range"][name]) for name in ("mean", "low", "high")]
        return [header, [label(results["systems"][0]["name"]), *cells, *counts]]
    row = results["comparison"]
    worst, best = results["delta"] or (None, None)
    if results["better"] == "lower":
        worst, best = best, worst
    ends = [("at worst", worst, results["at_worst"]), ("at best", best, results["at_best"])]
    now = f"{change(row['delta'])} {interval(row['ci'])}".strip()
    return [
        ["", f"Δ {results['measure']}", "p", "verdict", "unjudged", "can matter"],
        ["now", now, p_value(row["p"]), results["now"] or NOTHING, *counts],
        *([name, change(end), "", verdict or NOTHING, "", ""] for name, end, verdict in ends),
    ]


def _pairs_grid(results: Mapping[str, Any]) -> Grid:
    systems = [label(system["name"]) for system in results["systems"]]
    return table(
        results["next"],
        {
            "query": "query_id",
            "item": "item_id",
            **dict(zip(systems, ("first_rank", "second_rank"), strict=False)),
            "chance": lambda row: percent(row["chance"]),
            # Five decimals: one judgment of many moves a mean by little.
            "if relevant": lambda row: f"{row['effect']:+.5f}",
            "expected": lambda row: f"{row['expected']:.5f}",
        },
    )


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    yield from counts_lines(results)
    if results["without_gold"]:
        queries = plural(results["without_gold"], *_NO_GOLD)
        yield f"{queries} as having none, since a judgment may bring some"
    if results["judged_again"]:
        yield (
            f"{plural(results['judged_again'], 'pair')} judged again by a later file,"
            f" {results['judged_differently']:,} of them differently: the first judgment counts"
        )
    if not results["exact"]:
        yield "the ends are safe limits: no labels lead beyond them, but they may be out of reach"
    if results["next"]:
        yield (
            "columns: rank by system · chance of being relevant · change of the mean if relevant ·"
            " expected change"
        )
    conventions = results["conventions"]
    yield (
        f"profile {conventions['profile']} · ties {conventions['ties']} · a file of pairs is"
        f" shuffled, seed {conventions['seed']}"
    )
