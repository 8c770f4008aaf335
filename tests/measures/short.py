"""Short names for what tests of single lists say again and again."""

from __future__ import annotations

import polars as pl

import karat

Gold, Run, Queries, Corpus = (
    karat.Gold.from_dict,
    karat.Run.from_dict,
    karat.Queries.from_dict,
    karat.Corpus.from_dict,
)


def means(run, gold, measures, **options):
    return karat.evaluate(run, gold, measures, **options).means()


def table(*hits, columns=("query_id", "item_id", "score"), **options):
    return karat.Run.from_frame(pl.DataFrame(hits, schema=list(columns), orient="row"), **options)


def calls(*rows, columns):
    return pl.DataFrame(rows, schema=list(columns), orient="row")
