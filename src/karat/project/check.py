"""Check an eval set that options or a karat.yaml name: read it once, then check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from karat.analysis.check import Check, check
from karat.errors import UsageError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.gate_files import read_gate_file
from karat.formats.field_mapping import Fields
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.project.config import Config, read_config
from karat.project.systems import CONFIG_FILE

Progress = Callable[[Sequence[str]], AbstractContextManager[Callable[[str], None]]]


def check_files(
    config_file: str | None = None,
    *,
    gold: str | None = None,
    queries: str | None = None,
    corpus: str | None = None,
    gates: str | None = None,
    by: Sequence[str] = (),
    runs: Sequence[str] = (),
    measures: Sequence[str] | None = None,
    profile: str | None = None,
    settings: Mapping[str, Any] | None = None,
    spread: float | None = None,
    fields: Fields | None = None,
    strict: bool = False,
    progress: Progress,
) -> Check:
    """Read what the options name, else the karat.yaml, and check it.

    A wrong option is refused before any file is read.
    """
    config = Config()
    if config_file is not None or (gold is None and Path(CONFIG_FILE).is_file()):
        config = read_config(config_file or CONFIG_FILE)
    profile = profile or config.profile
    settings = config.settings | dict(settings or {})
    conventions = conventions_of(profile, settings)
    named = measures or config.measures
    if named:
        parse_measures(named, conventions=conventions)
    if len(runs) not in (0, 2):
        raise UsageError("--run is given twice, for two runs whose difference tells the spread")
    if runs and spread is not None:
        raise UsageError("--spread is assumed where there are no runs; give --run or --spread")
    queries = queries or (config.queries and config.path(config.queries))
    gold = gold or (config.gold and config.path(config.gold))
    corpus = corpus or (config.corpus and config.path(config.corpus))
    if gold is None and queries is None:
        raise UsageError("nothing to check: name a karat.yaml, or give --gold FILE")
    fields = config.mapping.updated(fields or Fields())
    files = [name for name in (gold or queries, corpus, *runs) if name is not None]
    if [*files, gates].count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    limits = None if gates is None else read_gate_file(gates, conventions=conventions)
    with progress(files) as begin:
        begin(files[0])
        evaluation = Evaluation(
            gold or queries,
            queries=queries,
            corpus=corpus,
            profile=profile,
            settings=settings,
            measures=named or None,
            fields=fields,
        )
        result = check(
            evaluation,
            *runs,
            gates=config.gates if limits is None else limits.gates,
            by=by or config.by,
            spread=spread,
            strict=strict,
        )
    digest = {"config_digest": config.digest} if config.digest else {}
    source = None if limits is None else limits.source
    return replace(result, inputs={**result.inputs, "gates": source, **digest})
