"""A story without queries: nothing is asked, and the report says so instead of a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from karat.analysis.gates import judge, measures_of
from karat.analysis.skipped import PROFILE
from karat.cli.searching import config_path
from karat.columns import Source
from karat.config import Config, read_config
from karat.errors import InputError
from karat.formats import read_corpus
from karat.formats.story import read_asked
from karat.measures.conventions import PROFILES
from karat.measures.names import parse_measures
from karat.measures.scores import Counts, Scores
from karat.reports.document import Report, build_report
from karat.tables import Gold, Queries

_IDS = {"query_id": pl.String}
_NOTHING = Source("nothing asked")


def without_queries(name: str | None, systems: Sequence[str] | None) -> Report | None:
    """The report of a story's karat.yaml that names no queries; None for any other.

    A file of queries with nothing in it names none either.
    """
    config = read_config(config_path(name))
    file = config.queries or config.gold
    if config.profile != PROFILE or not config.blueprints:
        return None
    if file is not None and not _holds_none(config.path(file)):
        return None
    source = _NOTHING if file is None else Source.of(Path(config.path(file)))
    # A story that cannot be read is worth telling, asked or not.
    corpus = (
        None
        if config.corpus is None
        else read_corpus(config.path(config.corpus), fields=config.mapping)
    )
    scores = [_unasked(config, system) for system in dict.fromkeys(systems or config.blueprints)]
    report = build_report(
        scores,
        gold=Gold(pl.DataFrame(schema={**_IDS, "item_id": pl.String, "grade": pl.Float64}), ()),
        queries=Queries(pl.DataFrame(schema={**_IDS, "text": pl.String}), source),
        corpus=corpus,
    )
    gatings = [
        judge(config.gates, one, None, system=one.system, left_out=config.left_out)
        for one in scores
        if config.gates
    ]
    return replace(
        report,
        gold=source,
        gatings=tuple(gatings),
        config_digest=config.digest,
        dataset_version=config.dataset_version,
        code_version=config.code_version,
    )


def _holds_none(path: str) -> bool:
    """Whether this is a list of queries with nothing in it; what cannot be read is not."""
    try:
        return not read_asked(path)
    except InputError:
        return False


def _unasked(config: Config, system: str) -> Scores:
    """The scores of a system that was asked nothing."""
    conventions = config.conventions
    named = parse_measures(config.measures or PROFILES[PROFILE].measures, conventions=conventions)
    measures = tuple(dict.fromkeys([*named, *measures_of(config.gates)]))
    columns = {str(measure): pl.Float64 for measure in measures}
    return Scores(
        system=system,
        source=_NOTHING,
        measures=measures,
        table=pl.DataFrame(schema={**_IDS, **columns}),
        status=pl.Series("status", [], dtype=pl.String),
        counts=Counts(),
        conventions=conventions,
        meta={},
    )
