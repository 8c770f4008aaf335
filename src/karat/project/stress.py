"""Stress tests of a karat.yaml's systems: which are damaged, how, and on what evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karat.analysis.stress import DEFAULT_EDITS, MINED, OWN, most_negatives
from karat.analysis.stress.edits import Drop, DropGold, Edit, Insert, Shuffle, Truncate
from karat.analysis.stress.lists import SearchedSystem
from karat.data.columns import Source
from karat.errors import InputError, UsageError, unknown
from karat.evaluation.evaluation import Evaluation
from karat.project.config import Config
from karat.project.systems import config_path, plan_search

_MOST = 10_000


def parse_edits(
    *,
    insert: int | None = None,
    at: str | None = None,
    drop: Sequence[str] | None = None,
    shuffle: bool = False,
    truncate: Sequence[str] | None = None,
) -> list[Edit]:
    """Return the edits that the options name, each a scenario; by default three negatives."""
    edits: list[Edit] = []
    if insert is not None or at is not None:
        edits.append(Insert(_ranks(insert, at)))
    for text in drop or ():
        edits.append(DropGold() if text == "gold" else Drop(_count("--drop", text, " or gold")))
    edits += [Shuffle()] if shuffle else []
    edits += [Truncate(_count("--truncate", text)) for text in truncate or ()]
    edits = edits or list(DEFAULT_EDITS)
    for place, edit in enumerate(edits):
        if edit in edits[:place]:
            raise UsageError(f"--{edit.name} is given twice; keep one")
    return edits


def _count(option: str, text: str, more: str = "") -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= _MOST and len(text) < 9:
        return int(text)
    raise UsageError(f"{option} is {text!r}; it is a whole number from 1 to {_MOST:,}{more}")


def _ranks(insert: int | None, at: str | None) -> tuple[int, ...]:
    if at is None:
        return tuple(range(1, (insert or 0) + 1))
    try:
        ranks = [int(text) for text in at.split(",")]
    except ValueError:
        ranks = [0]
    if not all(1 <= rank <= _MOST for rank in ranks):
        raise UsageError(f"--at is {at!r}; ranks are whole numbers from 1, as in 1,2,3")
    for rank in ranks:
        if ranks.count(rank) > 1:
            raise UsageError(f"--at is {at!r}; rank {rank} is in it twice")
    if insert is not None and insert != len(ranks):
        named = f"{len(ranks)} rank{'' if len(ranks) == 1 else 's'}"
        raise UsageError(f"--insert {insert} contradicts --at {at}, which names {named}")
    return tuple(sorted(ranks))


def check_negatives(negatives: str | None, edits: Sequence[Edit]) -> None:
    """Refuse a source of negatives that is not known, or that no edit needs."""
    if negatives is None:
        return
    if not most_negatives(edits):
        raise UsageError("--negatives says what --insert puts in; give --insert too")
    if negatives not in (OWN, MINED):
        raise unknown("--negatives", negatives, (OWN, MINED))


@dataclass(frozen=True, eq=False)
class StressPlan:
    """The systems of a karat.yaml to damage, and its files."""

    config: Config
    systems: list[SearchedSystem]
    files: list[str]

    @property
    def inputs(self) -> dict[str, Any]:
        """The karat.yaml, as a document lists it among its inputs."""
        path = Path(self.config.path(self.config.place.file))
        return {"config": Source.of(path), "config_digest": self.config.digest}

    def evaluation(
        self,
        *,
        profile: str | None,
        settings: Mapping[str, str],
        measures: Sequence[str],
        by: Sequence[str],
        seed: str | None,
        notify: Callable[[str], None],
    ) -> Evaluation:
        """Return the evaluation of the karat.yaml, with the options in place of its settings."""
        config = self.config
        gold = config.gold or config.queries
        if gold is None:
            raise InputError("has no gold; name its file: gold: qrels.txt", where=config.place.file)
        own = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in config.settings.items()
        }
        if config.seed is not None:
            own["seed"] = str(config.seed)
        if seed is not None:
            own.pop("seed", None)
        return Evaluation(
            config.path(gold),
            queries=None if config.queries is None else config.path(config.queries),
            corpus=None if config.corpus is None else config.path(config.corpus),
            profile=profile or config.profile,
            settings=own | dict(settings),
            measures=measures,
            by=by,
            fields=config.mapping.without_runs(),
            seed=seed,
            notify=notify,
        )


def plan_stress(
    config: str | None,
    *,
    systems: Sequence[str] | None,
    edits: Sequence[Edit],
    for_runs: Mapping[str, object],
) -> StressPlan:
    """Plan the systems of a karat.yaml; options ``for_runs`` are refused."""
    path = config_path(config)
    for name, value in for_runs.items():
        if value:
            what = "is none" if name.endswith(("format", "strict")) else "names its own"
            raise UsageError(f"{name} is for a run; {path.name} {what}")
    plan = plan_search(config, systems=systems or None)
    settings = plan.config
    if settings.corpus is None and most_negatives(edits):
        for system_config in plan.system_configs:
            if system_config.stages.rerank is not None or system_config.stages.mmr is not None:
                raise UsageError(
                    f"system {system_config.name!r} reads texts, and those of negatives come from"
                    " a corpus; name one in karat.yaml: corpus: items.jsonl"
                )
    named = (settings.gold, settings.queries, settings.corpus)
    return StressPlan(
        settings,
        [
            SearchedSystem(
                system_config,
                plan.context,
                plan.queries,
                plan.logs[system_config.name],
                plan.options.k,
            )
            for system_config in plan.system_configs
        ],
        [str(path), *(settings.path(name) for name in named if name is not None)],
    )
