"""What ``karat stress`` was asked for: the options read and checked before any file is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from karat.analysis.stress.edits import Drop, DropGold, Edit, Insert, Shuffle, Truncate
from karat.cli.numbers import whole
from karat.cli.scoring import Request as ScoringRequest
from karat.cli.scoring import parse_settings
from karat.cli.searching import config_path
from karat.config import Config, read_config
from karat.errors import InputError, UsageError, unknown

RANKS = (1, 2, 3)
SAMPLE = 100
SOURCES = ("own", "bm25")
_MOST = 10_000
_MEASURES = ("nDCG@5", "R@5", "RR@10")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat stress`` was asked for; what is None is left to the karat.yaml, or as usual."""

    subject: str | None = None
    systems: Sequence[str] = ()
    gold: str | None = None
    queries: str | None = None
    corpus: str | None = None
    insert: str | None = None
    at: str | None = None
    negatives: str | None = None
    drop: Sequence[str] = ()
    shuffle: bool = False
    truncate: Sequence[str] = ()
    sample: str | None = None
    measures: Sequence[str] | None = None
    profile: str | None = None
    settings: Sequence[str] = ()
    by: Sequence[str] = ()
    seed: str | None = None
    strict: bool = False
    run_format: str | None = None
    gold_format: str | None = None
    quiet: bool = False

    @property
    def of_systems(self) -> bool:
        """Whether a karat.yaml is to be stressed, and not a run."""
        return self.subject is None or Path(self.subject).suffix.lower() in (".yaml", ".yml")

    def files(self) -> list[str]:
        """Every input by name."""
        if not self.of_systems:
            named = (self.subject, self.gold, self.queries, self.corpus)
            return [name for name in named if name is not None]
        path = config_path(self.subject)
        config = read_config(path)
        inside = (config.gold, config.queries, config.corpus)
        return [str(path), *(config.path(name) for name in inside if name is not None)]


def parse_edits(request: Request) -> list[Edit]:
    """The edits that the options name, each a scenario; without any, three negatives on top."""
    edits: list[Edit] = []
    if request.insert is not None or request.at is not None:
        edits.append(Insert(_ranks(request.insert, request.at)))
    for text in request.drop:
        edits.append(
            DropGold() if text == "gold" else Drop(whole("--drop", text, otherwise="gold"))
        )
    if request.shuffle:
        edits.append(Shuffle())
    edits += [Truncate(whole("--truncate", text, most=_MOST)) for text in request.truncate]
    edits = edits or [Insert(RANKS)]
    for at, edit in enumerate(edits):
        if edit in edits[:at]:
            raise UsageError(f"--{edit.name} is given twice; keep one")
    inserting = any(isinstance(edit, Insert) for edit in edits)
    if request.negatives is not None and not inserting:
        raise UsageError("--negatives says what --insert puts in; give --insert too")
    if request.negatives is not None and request.negatives not in SOURCES:
        raise unknown("--negatives", request.negatives, SOURCES)
    return edits


def _ranks(insert: str | None, at: str | None) -> tuple[int, ...]:
    count = None if insert is None else whole("--insert", insert, most=_MOST)
    if at is None:
        return tuple(range(1, (count or 0) + 1))
    try:
        ranks = [int(text) for text in at.split(",")]
    except ValueError:
        ranks = [0]
    if not all(1 <= rank <= _MOST for rank in ranks):
        raise UsageError(f"--at is {at!r}; ranks are whole numbers from 1, as in 1,2,3")
    for rank in ranks:
        if ranks.count(rank) > 1:
            raise UsageError(f"--at is {at!r}; rank {rank} is in it twice")
    if count is not None and count != len(ranks):
        named = f"{len(ranks)} rank{'' if len(ranks) == 1 else 's'}"
        raise UsageError(f"--insert {count} contradicts --at {at}, which names {named}")
    return tuple(sorted(ranks))


def _dropped(text: str) -> int:
    return whole("--drop", text, most=_MOST, otherwise="gold")


def sample_size(request: Request) -> int | None:
    """How many queries are drawn at most; None for all."""
    if request.sample is None:
        return SAMPLE if request.of_systems else None
    if request.sample == "all":
        return None
    return whole("--sample", request.sample, otherwise="all")


def check(request: Request) -> None:
    """Refuse what would be ignored, before anything is read."""
    if not request.of_systems:
        if request.systems:
            raise UsageError("--system names a system of a karat.yaml; a run is of one system only")
        if request.gold is None and request.queries is None:
            raise UsageError("a run is held against gold; give --gold FILE")
        return
    path = config_path(request.subject).name
    for option, value in (
        ("--gold", request.gold),
        ("--queries", request.queries),
        ("--corpus", request.corpus),
    ):
        if value is not None:
            raise UsageError(f"{option} is for a run; {path} names its own")
    for option, given in (
        ("--run-format", request.run_format),
        ("--gold-format", request.gold_format),
        ("--strict", request.strict),
    ):
        if given:
            raise UsageError(f"{option} is for a run; {path} is none")


def scoring(request: Request) -> ScoringRequest:
    profile = request.profile or "karat"
    return ScoringRequest(
        runs=[request.subject or ""],
        gold=request.gold or request.queries or "",
        measures=request.measures or _MEASURES,
        profile=profile,
        settings=request.settings,
        by=request.by,
        queries=request.queries,
        corpus=request.corpus,
        seed=request.seed,
        strict=request.strict,
        run_format=request.run_format,
        gold_format=request.gold_format,
        quiet=request.quiet,
    )


def scoring_by(config: Config, request: Request) -> ScoringRequest:
    """What a karat.yaml says, with the options of the command line in place of its own."""
    gold = config.gold or config.queries
    if gold is None:
        raise InputError("has no gold; name its file: gold: qrels.txt", where=config.place.file)
    profile = request.profile or config.profile
    of_file = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in config.settings.items()
    }
    if config.seed is not None:
        of_file["seed"] = str(config.seed)
    if request.seed is not None:
        of_file.pop("seed", None)
    settings = of_file | parse_settings(request.settings)
    return ScoringRequest(
        runs=[],
        gold=config.path(gold),
        measures=request.measures or _MEASURES,
        profile=profile,
        settings=[f"{key}={value}" for key, value in settings.items()],
        by=request.by,
        queries=None if config.queries is None else config.path(config.queries),
        corpus=None if config.corpus is None else config.path(config.corpus),
        fields=config.mapping.without_runs(),
        seed=request.seed,
        quiet=request.quiet,
    )
