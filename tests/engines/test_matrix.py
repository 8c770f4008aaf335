"""Every measure on both engines: the same bits."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
import worlds
from alike import assert_same_bits

import karat
from karat.formats.readers import read_run, write_run
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.spark.engine import SparkEngine

SETTINGS = {
    "default": {},
    "level=doc": {"level": "doc"},
    "ties=given": {"ties": "given", "rel": 2},
    "depth=3": {"depth": 3, "ties": "id-desc"},
    "nothing is zero": {"missing": "skip", "empty_gold": "zero"},
    "conversations": {"unit": "group", "interval": "percentile"},
}


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A score of worlds as one: 120 queries, whose hits lie in no order."""
    folder = tmp_path_factory.mktemp("worlds")
    each = [worlds.world(seed) for seed in range(20)]

    def named(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
        return frame.with_columns(pl.format("{}-{}", pl.lit(seed), "query_id").alias("query_id"))

    def together(frames: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat([named(one, seed) for seed, one in enumerate(frames)])

    hits = together([one.run.hits for one in each])
    run = replace(
        each[0].run,
        hits=hits.sample(fraction=1.0, shuffle=True, seed=1),
        calls=together([one.run.calls for one in each]),
    )
    gold = karat.Gold.from_frame(
        together([one.gold.frame for one in each]),
        query_ids=[f"{seed}-{query}" for seed in range(20) for query in each[seed].gold.query_ids],
    )
    groups = pl.Series("group", [f"g{at % 37}" for at in range(120)])
    queries = together([one.queries.frame for one in each]).with_columns(groups)
    write_run(run, folder / "run.jsonl")
    run.hits.write_parquet(folder / "run.parquet")
    return folder, gold, karat.Queries.from_frame(queries), each[0].corpus


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("file", ["run.jsonl", "run.parquet"])
def test_every_measure_has_the_same_bits(many, spark, setting, file):
    folder, gold, queries, corpus = many
    calls = file == "run.jsonl"
    named = worlds.every(without_calls=not calls)
    same_on_both(folder / file, gold, queries, corpus, spark, "karat", SETTINGS[setting], named)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "story"])
def test_every_profile_has_the_same_bits(many, spark, profile):
    folder, gold, _, _ = many
    by_rank = conventions_of(profile, {}).order == "rank"
    file = folder / ("run.jsonl" if by_rank else "run.parquet")
    same_on_both(file, gold, None, None, spark, profile, {}, None)


def same_on_both(path, gold, queries, corpus, spark, profile, settings, named):
    conventions = conventions_of(profile, settings)
    measures = parse_measures(named or PROFILES[profile].measures, conventions=conventions)
    lenient = measures if named is None else ()
    here = karat.evaluate(
        read_run(path),
        gold,
        named,
        profile=profile,
        settings=settings,
        queries=queries,
        corpus=corpus,
    )
    engine = SparkEngine(spark, owned=False)
    prepared = prepare(engine.read_gold(gold), conventions, queries=queries, corpus=corpus)
    tables = {"queries": queries, "corpus": corpus, "lenient": lenient}
    there = engine.score(str(path), prepared, measures, **tables)
    assert_same_bits(there, here)
