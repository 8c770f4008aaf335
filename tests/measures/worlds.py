"""Small worlds with everything that any measure can ask for, and every measure there is."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import polars as pl

import karat
import karat.measure.names  # registers the measures
from karat.measure.registry import MEASURES

# Measures whose cut-off or parameters are special; all others follow from their definition.
_CUTS = {"FPR": ["@1"], "AUC": ["@2", "@7", "@25"]}
_PATHS = {
    "latency": [".retrieve.p50", ".retrieve.p99", ".total.mean"],
    "cost": [".tokens", ".tokens.sum"],
}
_EXTRAS = {
    "nDCG": ["nDCG(gain='exp')@3", "nDCG(gain={1: 5, 2: 0.3, 3: 0.2})@3"],
    "DCG": ["DCG(gain='exp')", "DCG(gain={1: 5, 2: 0.3})@3"],
    "CG": ["CG(gain={1: 5, 2: 0.3})@2"],
    "AP": ["AP(norm='k')@3"],
    "F": ["F(beta=2)@3"],
    "SetF": ["SetF(beta=0.5)"],
    "RBP": ["RBP(p=0.5)", "RBP(gain='linear')@3"],
    "RBPres": ["RBPres(p=0.5)@4"],
    "ERR": ["ERR(max=3)@3"],
    "Sim": ["Sim(of='all')@3"],
    "Coverage": ["Coverage(of='corpus')@3", "Coverage(of='items')@3"],
    "Novelty": ["Novelty(overlap=0.2)@4"],
    "FalseEvidence": ["FalseEvidence(threshold=2.5)@3", "FalseEvidence(keep=0.5)@5"],
    "AUC": ["AUC(of='nDCG')@10", "AUC(of='P', rel=2)@5"],
}


def spellings(name: str) -> list[str]:
    """A measure at every kind of cut-off it takes, and with its parameters."""
    definition = MEASURES[name]
    if definition.cutoff == "path":
        return [name + path for path in _PATHS[name]]
    kinds = {
        "must": ["@1", "@3", "@50", "@k", "@6tok"],
        "may": ["", "@1", "@3", "@k", "@6tok"],
        "none": [""],
        "recall": ["@0", "@0.35", "@1"],
    }
    cuts = _CUTS.get(name, kinds[definition.cutoff])
    inside = ["", "(rel=2)"] if "rel" in definition.parameters else [""]
    return [f"{name}{params}{cut}" for params in inside for cut in cuts] + _EXTRAS.get(name, [])


ALL = {name: spellings(name) for name in MEASURES}


def every(*, without_calls: bool = False) -> list[str]:
    """All measures in all spellings; perhaps without those that a logged call must bring."""
    of_calls = {"latency", "cost", "EL_F1"} if without_calls else set()
    return [spelling for name, many in ALL.items() if name not in of_calls for spelling in many]


@dataclass(frozen=True)
class World:
    run: karat.Run
    gold: karat.Gold
    queries: karat.Queries
    corpus: karat.Corpus

    def score(self, measures: list[str], **settings: object) -> karat.Scores:
        return karat.evaluate(
            self.run,
            self.gold,
            measures,
            settings={"missing_ids": "allow"} | settings,
            queries=self.queries,
            corpus=self.corpus,
        )

    def shuffled(self, seed: int) -> World:
        """The same world with the rows of every table in another order."""

        def mixed(frame: pl.DataFrame) -> pl.DataFrame:
            return frame.sample(fraction=1.0, shuffle=True, seed=seed)

        calls = None if self.run.calls is None else mixed(self.run.calls)
        return World(
            replace(self.run, hits=mixed(self.run.hits), calls=calls),
            replace(self.gold, frame=mixed(self.gold.frame)),
            replace(self.queries, frame=mixed(self.queries.frame)),
            replace(self.corpus, frame=mixed(self.corpus.frame)),
        )

    def only(self, query: str) -> World:
        """The world in which one query was asked."""
        calls = self.run.calls
        return World(
            replace(
                self.run,
                hits=self.run.hits.filter(query_id=query),
                calls=None if calls is None else calls.filter(query_id=query),
            ),
            karat.Gold.from_frame(self.gold.frame.filter(query_id=query), query_ids=[query]),
            replace(self.queries, frame=self.queries.frame.filter(query_id=query)),
            self.corpus,
        )


# full: everything is there. bare: no as_of, entities or k. void: judged, nothing relevant.
# none: no answer exists. gone: full, but not in the run. mute: asked, nothing came back.
QUERIES = ("full", "bare", "void", "none", "gone", "mute")


def world(seed: int, *, calls: bool = True) -> World:
    """A world by chance: ties, grades from -1 to 3 with halves, unknown versions, repeats."""
    chance = random.Random(seed)
    items = [f"doc{number // 3}#{number % 3}" for number in range(15)]
    words = ["apple", "tart", "storm", "sea", "key"]
    corpus = {
        item: {
            "text": " ".join(chance.choices(words, k=chance.randint(0, 4))),
            "tokens": chance.choice([None, 1, 2, 3]),
            "version": chance.choice([None, "2024-05-01", "2024-05-02T09:00:00", "2024-06-01"]),
        }
        for item in items
    }
    gold: dict[str, dict[str, float]] = {"none": {}}
    for query in ("full", "bare", "gone", "mute"):
        judged = chance.sample(items, chance.randint(2, 10))
        gold[query] = {item: chance.choice([-1, 0, 0.5, 1, 1, 2, 3]) for item in judged}
        gold[query][judged[0]] = 2
    gold["void"] = dict.fromkeys(chance.sample(items, 3), 0)
    hits = [
        {"query_id": query, "item_id": item, "score": float(chance.randint(0, 4))}
        for query in ("full", "bare", "void", "none", "stranger")
        for item in chance.choices(items, k=chance.randint(1, 12))
    ]
    # similarity belongs to the pair, so that it does not matter which of two equals is kept
    frame = pl.DataFrame(hits).with_columns(
        similarity=(pl.concat_str("query_id", "item_id").hash(seed) % 100) / 100
    )
    logged = [
        {
            "query_id": query,
            "latency.retrieve": float(chance.randint(1, 90)),
            "latency.rerank": float(chance.randint(1, 90)),
            "cost.tokens": float(chance.randint(0, 500)),
            "entities": chance.sample(["E1", "E2", "E3"], chance.randint(0, 3)),
        }
        for query in ("full", "bare", "void", "none", "mute")
    ]
    rich = {"as_of": "2024-05-02", "entities": ["E1", "E2"], "k": 2, "no_answer": False}
    poor = {"as_of": None, "entities": None, "k": None, "no_answer": False}
    brought = {query: {"text": query, **rich} for query in QUERIES}
    brought["bare"] = {"text": "bare", **poor}
    brought["none"] = {"text": "none", **rich, "no_answer": True}
    return World(
        karat.Run.from_frame(frame, calls=pl.DataFrame(logged) if calls else None),
        karat.Gold.from_dict(gold),
        karat.Queries.from_dict(brought),
        karat.Corpus.from_dict(corpus),
    )
