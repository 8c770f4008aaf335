"""Tab-separated values with named columns: ``csvs`` with tabs."""

from __future__ import annotations

from functools import partial

from karat.formats import csvs

read_gold = partial(csvs.read_gold, separator="\t")
read_queries = partial(csvs.read_queries, separator="\t")
read_corpus = partial(csvs.read_corpus, separator="\t")
read_run = partial(csvs.read_run, separator="\t")
column_names = partial(csvs.column_names, separator="\t")
scan_run = partial(csvs.scan_run, separator="\t")
write_gold = partial(csvs.write_gold, separator="\t")
write_queries = partial(csvs.write_queries, separator="\t")
write_corpus = partial(csvs.write_corpus, separator="\t")
write_run = partial(csvs.write_run, separator="\t")
