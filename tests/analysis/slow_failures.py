"""Small random worlds, and the class of each of their misses worked out list by list.

Nothing of karat's own classifying is used here: ranks are places in Python lists.
"""

from __future__ import annotations

import math
import random
from functools import cached_property
from typing import Any

from karat.data.tables import Corpus, Gold, Queries
from karat.evaluation.stages import Staged, Thresholds, score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

SIEVES = ["filter", "as_of", "threshold"]
REORDERING = ["rerank", "distinct_docs", "mmr"]
LINE = ["raw", *SIEVES, *REORDERING]
YEARS = ["2023", "2024", "2025"]
DAYS = [f"{year}-05-05" for year in YEARS]


class SmallWorld:
    """A run of a few queries in which much goes wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.lines = Thresholds(
            miss=3,
            deep=rng.choice([4, 6]),
            similarity=0.4,
            score=rng.choice([None, 0.5]),
            dominant_queries=rng.choice([2, 3]),
            dominant_share=0.1,
            dominant_lift=rng.choice([0.0, 1.2, 2.0]),
            dominance=rng.choice([0.3, 0.6]),
        )
        self.level = rng.choice(["item", "item", "doc"])
        self.items = [f"d{i % 9}#{i}" for i in range(18)]
        self.in_corpus = {item for item in self.items if rng.random() < 0.85}
        self.version = {item: rng.choice([None, *DAYS]) for item in self.items}
        self.source = {item: rng.choice(["docs", "mails"]) for item in self.items}
        self.gold: dict[str, dict[str, int]] = {}
        self.query: dict[str, dict[str, Any]] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.stages = [name for name in LINE if rng.random() < (0.9 if name == "raw" else 0.4)]
        self.everything = rng.random() < 0.5
        self.with_corpus, self.meta = rng.random() < 0.7, {}
        if rng.random() < 0.2:
            self.meta["reranker_model"] = "some"
        self.cosine = rng.random() < 0.3
        if self.cosine:
            self.meta["score_kind"] = "cosine"
        for number in range(24):
            self._query(f"q{number}")

    def _query(self, name: str) -> None:
        rng = self.rng
        units = sorted({self.unit(item) for item in self.items})
        self.gold[name] = {unit: rng.choice([0, 1, 2]) for unit in rng.sample(units, 2)}
        self.query[name] = {"text": name, "as_of": rng.choice([None, None, *DAYS])}
        self.query[name]["min_similarity"] = rng.choice([None, None, 0.8])
        self.query[name]["source"] = rng.choice([None, None, ["docs"], ["mails", "wiki"]])
        chance = rng.random()
        if chance < 0.05:
            return
        record: dict[str, Any] = {"query_id": name, "system": "small", **self.meta}
        self.records[name] = record
        if chance < 0.1:
            record["error"] = "it broke"
            return
        if rng.random() < 0.4:
            record["source"] = rng.choice(["docs", "mails", "docs+mails", "wiki"])
        if rng.random() < 0.2:
            record["latency_ms"] = {"rerank": 3.0}
        hits = [self._hit(item, place) for place, item in enumerate(self._sample(), 1)]
        stages: dict[str, Any] = {}
        for stage in self.stages:
            hits = hits if stage == "raw" else self._after(stage, hits)
            if self.everything or rng.random() < 0.7:
                stages[stage] = hits
        record["topk"] = self._after("cut", hits)
        if "raw" in stages:
            record["raw"] = stages.pop("raw")
        if rng.random() < 0.2:
            stages["original"] = [{"chunk_id": item, "score": 1.0} for item in self._sample()]
        record["stages"] = stages

    def _sample(self) -> list[str]:
        # Some items turn up far more often than others.
        size = self.rng.choice([0, 3, 8, 12, 16])
        often = [item for item in self.items[:4] if self.rng.random() < 0.5][:size]
        rest = [item for item in self.items if item not in often]
        return often + self.rng.sample(rest, size - len(often))

    def _hit(self, item: str, place: int) -> dict[str, Any]:
        hit: dict[str, Any] = {"chunk_id": item, "score": round(1 - place / 16, 3)}
        if self.rng.random() < 0.6:
            hit["similarity"] = self.rng.choice([0.1, 0.4, 0.8, 0.9])
        return hit

    def _after(self, stage: str, hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rng = self.rng
        if stage in SIEVES:
            kept = [hit for hit in hits if rng.random() < 0.75]
            # Some sieves ask the retriever for more.
            more = [item for item in self.items if item not in {h["chunk_id"] for h in hits}]
            extra = rng.sample(more, min(len(more), 2)) if rng.random() < 0.2 else []
            return [*kept, *(self._hit(item, 15) for item in extra)]
        if stage in REORDERING:
            return rng.sample(hits, rng.randint(max(0, len(hits) - 2), len(hits)))
        how, k = rng.random(), rng.choice([2, 4, 5, 9])
        if how < 0.15:
            hits = [hit for hit in hits if rng.random() < 0.6]
        elif how < 0.25:
            hits = rng.sample(hits, len(hits))
        elif how < 0.3:
            hits = []
        return hits[:k]

    def unit(self, item: str) -> str:
        return item if self.level == "item" else item.partition("#")[0]

    def corpus(self) -> Corpus | None:
        if not self.with_corpus:
            return None
        return Corpus.from_dict(
            {
                item: {"text": item, "version": self.version[item], "source": self.source[item]}
                for item in self.items
                if item in self.in_corpus
            }
        )

    def queries(self) -> Queries:
        return Queries.from_dict(self.query)

    def staged(self, measures: str = "R@3", **settings: Any) -> Staged:
        conventions = conventions_of("karat", {"level": self.level, **settings})
        gold = Gold.from_dict(self.gold)
        prepared = prepare(gold, conventions, queries=self.queries(), corpus=self.corpus())
        run = run_of_records(self.records.values(), name="small")
        return score_stages(run, prepared, parse_measures(measures), keep=5)

    # From here on: the slow way.

    def right(self, name: str) -> set[str]:
        return {unit for unit, grade in self.gold[name].items() if grade >= 1}

    def logged(self, name: str, stage: str) -> list[str]:
        record = self.records.get(name, {})
        key = {"final": "topk", "raw": "raw"}.get(stage)
        hits = record.get("stages", {}).get(stage, []) if key is None else record.get(key, [])
        return [hit["chunk_id"] for hit in hits]

    def rank(self, name: str, items: list[str]) -> float:
        places = [at for at, i in enumerate(items, 1) if self.unit(i) in self.right(name)]
        return min(places, default=math.inf)

    def chain(self, name: str) -> list[tuple[str, list[str]]]:
        """The lists logged before the final one; a stage before nothing but emptiness is empty."""
        known = [s for s in LINE if any(self.logged(other, s) for other in self.records)]
        found = []
        for at, stage in enumerate(known):
            own = self.logged(name, stage)
            later = [self.logged(name, other) for other in (*known[at + 1 :], "final")]
            if own or not any(later):
                found.append((stage, own))
        return found

    def misses(self) -> list[str]:
        return [
            name
            for name in self.gold
            if self.right(name) and self.rank(name, self.logged(name, "final")) > self.lines.miss
        ]

    @cached_property
    def dominant(self) -> set[str]:
        above: dict[str, int] = {}
        scored = [n for n in self.gold if self.right(n) and n in self.answered()]
        longest = max(len(self.logged(name, "final")) for name in scored)
        places = 0
        for name in scored:
            final = self.logged(name, "final")
            for place in range(1, min(self.lines.miss, longest) + 1):
                if place < self.rank(name, final):
                    places += 1
                    if place <= len(final):
                        item = final[place - 1]
                        above[item] = above.get(item, 0) + 1
        needed = max(self.lines.dominant_queries, math.ceil(len(scored) / 10))
        shown = {i for n in self.gold for i in self.logged(n, "final")[: self.lines.miss]}
        items = len(self.in_corpus) if self.with_corpus else len(shown)
        chance = self.lines.dominant_lift * places / max(items, 1)
        return {item for item, count in above.items() if count >= max(needed, chance)}

    def answered(self) -> set[str]:
        return {name for name, record in self.records.items() if "error" not in record}

    def slow_class(self, name: str) -> str:
        """The first class that applies, worked out from the records themselves."""
        if "error" in self.records.get(name, {}):
            return "failed_call"
        if name not in self.records:
            return "not_in_run"
        return next(kind for kind, applies in self._tests(name) if applies)

    def _tests(self, name: str) -> Any:
        lines, record = self.lines, self.records[name]
        chain, final = self.chain(name), self.logged(name, "final")
        ranks = [self.rank(name, items) for _, items in chain]
        returned = self.rank(name, final)
        gone = math.isinf(returned)
        original = self.logged(name, "original")
        everywhere = [*(items for _, items in chain), final]
        best = min(self.rank(name, items) for items in everywhere)
        nowhere = math.isinf(min(best, self.rank(name, original)))
        first = everywhere[0]
        rank = self.rank(name, first)

        units = {self.unit(item) for item in self.in_corpus}
        known = bool(self.right(name) & units) or not self.with_corpus or not nowhere
        yield "not_in_index", not known

        right = set(self.query[name]["source"] or [])
        if not right and self.with_corpus:
            mine = [i for i in self.in_corpus if self.unit(i) in self.right(name)]
            right = {self.source[item] for item in mine}
        chosen = record.get("source")
        lost = bool(chosen and right) and not right & set((chosen or "").split("+"))
        yield "routed_away", lost and math.isinf(rank)

        yield "rewritten_away", self.rank(name, original) <= lines.miss

        def taken_out(stage: str) -> bool:
            for at, (own, _) in enumerate(chain):
                if own == stage:
                    before = at > 0 and math.isfinite(ranks[at - 1])
                    return before and math.isinf(min([*ranks[at:], returned]))
            return False

        yield "freshness_filtered", taken_out("as_of") or (nowhere and self._too_new(name, final))

        last = chain[-1][1] if chain else []
        behind = {item: place for place, item in enumerate(last, 1)}
        places = [behind.get(item, 0) for item in final]
        in_order = 0 not in places and places == sorted(places)
        here = self.rank(name, last)
        low_score = self._fact(name, first, rank, "score")
        below = lines.score is not None and low_score is not None and low_score < lines.score
        over = gone and in_order and math.isfinite(here) and any(p > here for p in places)
        emptied = gone and math.isfinite(here) and not final and not below
        yield "filtered_out", taken_out("filter") or over or emptied

        yield "threshold_exclusion", taken_out("threshold") or (gone and below)

        yield "complete_miss", best > lines.deep

        similarity = self._fact(name, first, rank, "similarity")
        if similarity is None and self.cosine:
            similarity = low_score
        least = self.query[name]["min_similarity"]
        least = lines.similarity if least is None else least
        mismatch = similarity is not None and similarity < least
        yield "embedding_mismatch", lines.miss < rank < math.inf and mismatch

        yield "rerank_demotion", self._demoted(name, chain, ranks, returned, in_order)

        before_cut = here if chain else returned
        top = {item for item in final[: lines.miss] if self._wrong(name, item)}
        taken = len(self.dominant & top)
        share = taken / max(1, min(len(final), lines.miss))
        crowded = taken > 0 and share >= lines.dominance
        yield "false_positive_dominance", lines.miss < before_cut < math.inf and crowded
        yield "low_rank", not gone
        yield "cut_by_k", math.isfinite(here)

    def _wrong(self, name: str, item: str) -> bool:
        return self.unit(item) not in self.right(name)

    def _demoted(
        self, name: str, chain: Any, ranks: list[float], returned: float, in_order: bool
    ) -> bool:
        record, miss = self.records[name], self.lines.miss
        places = [at for at, (stage, _) in enumerate(chain) if stage in REORDERING]
        sources = [at for at, (stage, _) in enumerate(chain) if stage not in REORDERING]
        before = ranks[sources[-1]] if sources else math.inf
        lost = math.isinf(returned) or before <= miss
        if places:
            after = ranks[places[-1]]
            dropped = math.isinf(after) and math.isfinite(min([*ranks[: places[-1]], math.inf]))
            return lost and (dropped or (math.isfinite(before) and after > before))
        moved = "latency_ms" in record or "reranker_model" in self.meta or not in_order
        return moved and lost and math.isfinite(before)

    def _too_new(self, name: str, final: list[str]) -> bool:
        as_of = self.query[name]["as_of"]
        mine = [i for i in self.in_corpus if self.unit(i) in self.right(name)]
        told = [self.version[item] for item in mine]
        if not self.with_corpus or as_of is None or not told:
            return False
        if any(version is None or version <= as_of for version in told):
            return False
        known = [self.version[i] for i in final[: self.lines.miss] if i in self.in_corpus]
        known = [version for version in known if version is not None]
        return not any(v > as_of for v in known) and (bool(known) or not final)

    def _fact(self, name: str, items: list[str], rank: float, fact: str) -> Any:
        """What the log says of the best-placed gold in the first list."""
        if math.isinf(rank):
            return None
        record = self.records[name]
        lists = [record.get("raw") or [], *record.get("stages", {}).values(), record["topk"]]
        for hits in lists:
            if hits and [hit["chunk_id"] for hit in hits] == items:
                return hits[int(rank) - 1].get(fact)
        raise AssertionError("the first list is one of those logged")
