"""``karat stress``: how robust a reranker or a list is against hard negatives and damage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from karat.cli import options
from karat.errors import InputError, UsageError, unknown

if TYPE_CHECKING:
    from karat.analysis.stress.edits import Edit
    from karat.analysis.stress.lists import SearchedSystem
    from karat.evaluation.evaluation import Evaluation
    from karat.project.config import Config
    from karat.project.systems import SearchPlan

MEASURES = ("nDCG@5", "R@5", "RR@10")
# How many queries of a karat.yaml are asked unless named.
SAMPLE = 100
_MOST = 10_000

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN_OR_CONFIG",
        help="A karat.yaml, whose systems rerank again, or a run. Default: this folder's"
        " karat.yaml.",
    ),
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--system", metavar="NAME", help="Only this system of it; repeatable."),
]
Gold = Annotated[
    str | None, typer.Option("--gold", metavar="FILE", help="The judgments, for a run.")
]
Insert = Annotated[
    str | None,
    typer.Option("--insert", metavar="N", help="Put N hard negatives in. Default: 3."),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="RANKS", help="Where, as in 1,2,3. Default: on top."),
]
Negatives = Annotated[
    str | None,
    typer.Option(
        "--negatives",
        metavar="own|bm25",
        help="The eval set's own, or the best by BM25 that are not gold. Default: own if any.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", metavar="N|gold", help="Take the first N out, or the best gold; repeatable."
    ),
]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Put the list in random order.")]
Truncate = Annotated[
    list[str] | None,
    typer.Option("--truncate", metavar="N", help="Leave only the first N; repeatable."),
]
Sample = Annotated[
    str | None,
    typer.Option(
        "--sample",
        metavar="N|all",
        help="How many queries to draw by the seed. Default: 100 for a karat.yaml, all for a run.",
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What may drop; the first decides; repeatable. Default: nDCG@5, R@5, RR@10.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The reading of measures and gaps. Default: the karat.yaml's, else karat.",
    ),
]

EXAMPLES = """\b
Examples:
  karat stress karat.yaml --system hybrid
  karat stress --insert 3 --at 1,2,3 --drop gold --shuffle --truncate 20
  karat stress --negatives bm25 --sample 200 --by language -o stress.json -o stress.md
  karat stress run.jsonl --gold eval.jsonl --insert 2 --at 1,3
"""


def stress(
    subject: Subject = None,
    system: Systems = None,
    gold: Gold = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    insert: Insert = None,
    at: At = None,
    negatives: Negatives = None,
    drop: Drop = None,
    shuffle: Shuffle = False,
    truncate: Truncate = None,
    sample: Sample = None,
    measures: Measures = None,
    profile: Profile = None,
    settings: options.Settings = None,
    by: options.By = None,
    output: options.PageOutputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
) -> None:
    """Damage the lists that a reranker is given, let it run again, and measure the drop.

    Each kind of damage is a scenario of its own; without any, three hard negatives are put on
    top. Of a karat.yaml's systems the retrieved list is damaged and all later stages run again.
    A run cannot be reranked: there the list itself is damaged, and the output says so.

    Exits with 3 when not one query could be measured before and after.

    """
    from karat.analysis.stress import stress as stress_lists
    from karat.cli.analysis import open_evaluation, parse_page_outputs, publish
    from karat.cli.numbers import whole
    from karat.cli.progress import counting

    plan = None
    quiet_bars = quiet or as_json
    of_systems = subject is None or Path(subject).suffix.lower() in (".yaml", ".yml")
    inputs = _config_files(subject) if of_systems else [subject, gold, queries, corpus]
    outputs = parse_page_outputs(output, inputs, as_json=as_json)
    edits = _parse_edits(insert, at, drop or [], shuffle=shuffle, truncate=truncate or [])
    _check_negatives(negatives, edits)
    size = None if sample is None or sample == "all" else whole("--sample", sample, otherwise="all")
    chosen = measures or MEASURES
    if of_systems:
        for_runs = {
            "--gold": gold,
            "--queries": queries,
            "--corpus": corpus,
            "--run-format": run_format,
            "--gold-format": gold_format,
            "--strict": strict,
        }
        plan = _plan(subject, system, edits, for_runs)
        evaluation = _project_evaluation(
            plan.config,
            profile,
            settings or [],
            measures=chosen,
            by=by,
            seed=seed,
            quiet=quiet_bars,
        )
        result = stress_lists(
            evaluation,
            systems=_searched_systems(plan),
            edits=edits,
            sample_size=SAMPLE if sample is None else size,
            negatives=negatives,
            inputs=_config_inputs(plan.config),
            open_bar=partial(counting, quiet=quiet_bars),
        )
    else:
        if system:
            raise UsageError("--system names a system of a karat.yaml; a run is of one system only")
        if gold is None and queries is None:
            raise UsageError("a run needs gold; give --gold FILE")
        evaluation = open_evaluation(
            [subject or ""],
            gold or queries or "",
            queries=queries,
            corpus=corpus,
            profile=profile or "karat",
            settings=settings,
            strict=strict,
            run_format=run_format,
            gold_format=gold_format,
            measures=chosen,
            by=by,
            seed=seed,
            quiet=quiet_bars,
        )
        result = stress_lists(
            evaluation, subject, edits=edits, sample_size=size, negatives=negatives
        )
    publish(result, outputs, as_json=as_json, quiet=quiet)


def _config_files(config: str | None) -> list[str]:
    """Return a karat.yaml and the files that it names."""
    from karat.project.config import read_config
    from karat.project.systems import config_path

    path = config_path(config)
    settings = read_config(path)
    named = (settings.gold, settings.queries, settings.corpus)
    return [str(path), *(settings.path(name) for name in named if name is not None)]


def _parse_edits(
    insert: str | None,
    at: str | None,
    drop: Sequence[str],
    *,
    shuffle: bool,
    truncate: Sequence[str],
) -> list[Edit]:
    """Return the edits that the options name, each a scenario; by default three negatives."""
    from karat.analysis.stress import DEFAULT_EDITS
    from karat.analysis.stress.edits import Drop, DropGold, Insert, Shuffle, Truncate
    from karat.cli.numbers import whole

    edits: list[Edit] = []
    if insert is not None or at is not None:
        edits.append(Insert(_ranks(insert, at)))
    for text in drop:
        gold = text == "gold"
        edits.append(DropGold() if gold else Drop(whole("--drop", text, otherwise="gold")))
    edits += [Shuffle()] if shuffle else []
    edits += [Truncate(whole("--truncate", text, most=_MOST)) for text in truncate]
    edits = edits or list(DEFAULT_EDITS)
    for place, edit in enumerate(edits):
        if edit in edits[:place]:
            raise UsageError(f"--{edit.name} is given twice; keep one")
    return edits


def _ranks(insert: str | None, at: str | None) -> tuple[int, ...]:
    from karat.cli.numbers import whole

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


def _check_negatives(negatives: str | None, edits: Sequence[Edit]) -> None:
    from karat.analysis.stress import MINED, OWN, most_negatives

    if negatives is None:
        return
    if not most_negatives(edits):
        raise UsageError("--negatives says what --insert puts in; give --insert too")
    if negatives not in (OWN, MINED):
        raise unknown("--negatives", negatives, (OWN, MINED))


def _plan(
    config: str | None,
    systems: Sequence[str] | None,
    edits: Sequence[Edit],
    for_runs: Mapping[str, object],
) -> SearchPlan:
    """Plan the systems of a karat.yaml; refuse options that only a run has."""
    from karat.analysis.stress import most_negatives
    from karat.project.systems import config_path, plan_search

    name = config_path(config).name
    for option, value in for_runs.items():
        if value:
            what = "is none" if option.endswith(("format", "strict")) else "names its own"
            raise UsageError(f"{option} is for a run; {name} {what}")
    plan = plan_search(config, systems=systems or None)
    if plan.config.corpus is None and most_negatives(edits):
        for system_config in plan.system_configs:
            if system_config.stages.rerank is not None or system_config.stages.mmr is not None:
                raise UsageError(
                    f"system {system_config.name!r} reads texts, and those of negatives come from"
                    " a corpus; name one in karat.yaml: corpus: items.jsonl"
                )
    return plan


def _project_evaluation(
    config: Config,
    profile: str | None,
    settings: Sequence[str],
    *,
    measures: Sequence[str],
    by: Sequence[str] | None,
    seed: str | None,
    quiet: bool,
) -> Evaluation:
    """Return the evaluation of a karat.yaml, with the options in place of its own settings."""
    from karat.cli.options import parse_settings
    from karat.evaluation.evaluation import Evaluation

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
        settings=own | parse_settings(settings),
        measures=measures,
        by=by or [],
        fields=config.mapping.without_runs(),
        seed=seed,
        notify=lambda message: None if quiet else typer.echo(message, err=True),
    )


def _searched_systems(plan: SearchPlan) -> list[SearchedSystem]:
    from karat.analysis.stress.lists import SearchedSystem

    return [
        SearchedSystem(
            system_config, plan.context, plan.queries, plan.logs[system_config.name], plan.options.k
        )
        for system_config in plan.system_configs
    ]


def _config_inputs(config: Config) -> dict[str, Any]:
    from karat.data.columns import Source

    path = Path(config.path(config.place.file))
    return {"config": Source.of(path), "config_digest": config.digest}
