"""The floor: scan.py QRELS RUN... reads query, item and score with Polars and does nothing else."""

import sys

import polars as pl

TEXT, NUMBER = pl.String, pl.Float64
SCHEMA = {"query": TEXT, "q0": TEXT, "item": TEXT, "rank": TEXT, "score": NUMBER, "tag": TEXT}

for path in sys.argv[2:]:
    lines = pl.scan_csv(path, separator=" ", has_header=False, quote_char=None, schema=SCHEMA)
    lines.select("query", "item", "score").collect()
