"""A store as karat made it when its tables were of version 1, with two evaluations in it."""

from __future__ import annotations

import io
import json

import polars as pl
from sqlalchemy import create_engine, text

SQLITE = """
CREATE TABLE karat_reports (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    document TEXT NOT NULL
);
CREATE TABLE karat_store (
    id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE karat_evaluations (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    report_id INTEGER NOT NULL,
    saved_at DATETIME NOT NULL,
    system VARCHAR(255) NOT NULL,
    revision VARCHAR(255),
    dirty BOOLEAN,
    note TEXT NOT NULL,
    verdict VARCHAR(50),
    karat_version VARCHAR(50) NOT NULL,
    run_name VARCHAR(255) NOT NULL,
    run_sha256 VARCHAR(64),
    gold_name VARCHAR(255) NOT NULL,
    gold_sha256 VARCHAR(64),
    queries_name VARCHAR(255),
    queries_sha256 VARCHAR(64),
    corpus_name VARCHAR(255),
    corpus_sha256 VARCHAR(64),
    about TEXT NOT NULL,
    FOREIGN KEY(report_id) REFERENCES karat_reports (id)
);
CREATE INDEX ix_karat_evaluations_gold_sha256 ON karat_evaluations (gold_sha256);
CREATE INDEX ix_karat_evaluations_saved_at ON karat_evaluations (saved_at);
CREATE INDEX ix_karat_evaluations_system ON karat_evaluations (system);
CREATE TABLE karat_measures (
    evaluation_id INTEGER NOT NULL,
    measure VARCHAR(255) NOT NULL,
    position INTEGER NOT NULL,
    mean DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    n INTEGER NOT NULL,
    better VARCHAR(10) NOT NULL,
    ceiling DOUBLE,
    more TEXT NOT NULL,
    PRIMARY KEY (evaluation_id, measure),
    FOREIGN KEY(evaluation_id) REFERENCES karat_evaluations (id)
);
CREATE INDEX karat_measures_by_name ON karat_measures (measure);
CREATE TABLE karat_scores (
    evaluation_id INTEGER NOT NULL,
    queries BLOB NOT NULL,
    evidence BLOB,
    PRIMARY KEY (evaluation_id),
    FOREIGN KEY(evaluation_id) REFERENCES karat_evaluations (id)
);
CREATE TABLE karat_tags (
    evaluation_id INTEGER NOT NULL,
    tag VARCHAR(255) NOT NULL,
    tagged_at DATETIME NOT NULL,
    PRIMARY KEY (evaluation_id, tag),
    FOREIGN KEY(evaluation_id) REFERENCES karat_evaluations (id)
);
CREATE INDEX karat_tags_by_name ON karat_tags (tag)
"""

# What PostgreSQL calls otherwise.
_POSTGRESQL = {
    "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT": "SERIAL PRIMARY KEY",
    "DATETIME": "TIMESTAMP WITH TIME ZONE",
    "DOUBLE": "DOUBLE PRECISION",
    "BLOB": "BYTEA",
}

CONVENTIONS = {"profile": "karat", "order": "rank", "rel": 1.0, "seed": 0, "unit": "query"}
ABOUT = {
    "measures": [["RR", None, []]],
    "conventions": CONVENTIONS,
    "counts": {"queries": 2, "scored": 2},
    "meta": {"index_version": "7"},
    "lacks": {},
    "fingerprint": "f00d",
    "totals": {"run": {}, "ideal": {}},
}
MORE = {"quantiles": [0.5, 0.5, 0.5, 1.0, 1.0], "ties": None, "lacks": None}
_ROWS = {
    "karat_store": {"id": 1, "version": 1},
    "karat_reports": {"id": 1, "document": '{"verdict": "pass"}'},
    "karat_evaluations": {
        "report_id": 1,
        "revision": "abc123",
        "dirty": False,
        "note": "as it was",
        "verdict": "pass",
        "karat_version": "0.1.0",
        "run_name": "bm25.trec",
        "gold_name": "qrels.txt",
        "gold_sha256": "f" * 64,
        "about": json.dumps(ABOUT),
    },
    "karat_measures": {
        "measure": "RR",
        "position": 0,
        "mean": 0.75,
        "ci_low": 0.5,
        "ci_high": 1.0,
        "n": 2,
        "better": "higher",
        "more": json.dumps(MORE),
    },
}


def make(url: str) -> None:
    """Make a store of version 1 with two systems that were saved together, the first tagged."""
    engine = create_engine(url)
    postgresql = engine.dialect.name == "postgresql"
    ddl = SQLITE
    for ours, theirs in _POSTGRESQL.items() if postgresql else ():
        ddl = ddl.replace(ours, theirs)
    written = io.BytesIO()
    values = {"query_id": ["q1", "q2"], "status": ["scored", "scored"], "value:RR": [1.0, 0.5]}
    pl.DataFrame(values).write_parquet(written)
    moment = "2026-01-01 12:00:00.000000" + ("+00" if postgresql else "")
    with engine.begin() as connection:

        def insert(table: str, **more: object) -> None:
            row = {**_ROWS.get(table, {}), **more}
            names = ", ".join(row)
            marks = ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), row)

        for statement in ddl.split(";"):
            connection.execute(text(statement))
        insert("karat_store")
        insert("karat_reports")
        for id, system in ((1, "bm25"), (2, "dense")):
            insert("karat_evaluations", id=id, system=system, saved_at=moment)
            insert("karat_measures", evaluation_id=id)
            insert("karat_scores", evaluation_id=id, queries=written.getvalue())
        insert("karat_tags", evaluation_id=1, tag="main", tagged_at=moment)
        if postgresql:
            for table, last in (("reports", 1), ("evaluations", 2)):
                connection.execute(text(f"SELECT setval('karat_{table}_id_seq', {last})"))
    engine.dispose()
