"""From a karat.yaml to run logs: which systems, which queries, under which limits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from karat.cli.interrupts import heed_interrupts
from karat.cli.progress import counting
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.columns import Source
from karat.config import Config, read_config
from karat.errors import CallError, InputError, UsageError, unknown
from karat.formats import read_queries
from karat.formats.field_mapping import Fields
from karat.formats.files import file_name
from karat.measures.names import parse_measures
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.protocol import Query, queries_from
from karat.retrievers.searching import Searched, Wishes, search
from karat.retrievers.system import DEFAULT_K
from karat.retrievers.workshop import Workshop
from karat.revision import revision_here
from karat.systems import workshop_of

CONFIG = "karat.yaml"
_SYSTEM = "{system}"
_ID = "query_id"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat search`` was asked for; what is None is left to the karat.yaml."""

    config: str | None = None
    systems: Sequence[str] | None = None
    output: str | None = None
    resume: bool = False
    restart: bool = False
    limit: str | None = None
    only: Sequence[str] = ()
    concurrency: str | None = None
    rate: str | None = None
    timeout: str | None = None
    retries: str | None = None
    max_failures: str | None = None
    latency: bool = True
    fields: Fields = field(default_factory=Fields)
    quiet: bool = False
    settings: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """The systems to ask, the queries to ask them, and where the logs go."""

    config: Config
    blueprints: list[Blueprint]
    queries: list[Query]
    workshop: Workshop
    logs: dict[str, Path]
    wishes: Wishes


def search_all(request: Request) -> list[Searched]:
    """Ask every system of the request; what is misspelled is refused before any is asked."""
    heed_interrupts()
    plan = plan_of(request)
    return [search_one(plan, blueprint, quiet=request.quiet) for blueprint in plan.blueprints]


def search_one(
    plan: Plan, blueprint: Blueprint, *, quiet: bool, digest: str | None = None
) -> Searched:
    """Ask one system, with a bar for the building and one for the calls."""
    name = blueprint.name
    with _staying_here(), counting(name, len(plan.queries), quiet=quiet) as bar:
        return search(
            blueprint,
            replace(plan.workshop, progress=bar.build),
            plan.queries,
            plan.logs[name],
            wishes=plan.wishes,
            digest=digest,
            advance=bar.advance,
        )


@contextmanager
def _staying_here() -> Iterator[None]:
    """Come back to this folder, wherever someone else's code went."""
    here = Path.cwd()
    try:
        yield
    finally:
        os.chdir(here)


def plan_of(request: Request) -> Plan:
    """Read the config and the queries, and check every option."""
    path = config_path(request.config)
    config = read_config(path).with_fields(request.fields)
    blueprints = _blueprints(config, request.systems)
    logs = _logs(config, blueprints, request)
    asked, source = _queries(config, request, path)
    timeout = _number("--timeout", request.timeout, least=0.001)
    workshop = workshop_of(config, path.parent.absolute(), timeout=timeout)
    wishes = replace(_wishes(request, config, path), queries=source)
    return Plan(config, blueprints, asked, workshop, logs, wishes)


def config_path(given: str | None) -> Path:
    """The karat.yaml that was named, or that of this folder."""
    if given is not None:
        return Path(given)
    if Path(CONFIG).is_file():
        return Path(CONFIG)
    raise UsageError("no karat.yaml in this folder; name one, such as path/to/karat.yaml")


def _blueprints(config: Config, wanted: Sequence[str] | None) -> list[Blueprint]:
    blueprints = config.blueprints
    if not blueprints:
        raise config.place.error(
            "has no systems; add some, such as systems: {bm25: {retriever: bm25}}"
        )
    for name in wanted or ():
        if name not in blueprints:
            raise unknown("system", name, blueprints)
    return [blueprints[name] for name in dict.fromkeys(wanted or blueprints)]


def _logs(config: Config, blueprints: Sequence[Blueprint], request: Request) -> dict[str, Path]:
    """Where each system's log goes; one of some queries only does not replace that of all."""
    some = ".sample" if request.limit is not None or request.only else ""
    usual = str(Path(config.path(config.runs)) / f"{_SYSTEM}{some}.jsonl")
    template = request.output or usual
    names = ", ".join(blueprint.name for blueprint in blueprints)
    if _SYSTEM not in template and len(blueprints) > 1:
        raise UsageError(
            f"-o {template} is one file for {len(blueprints)} systems ({names}); "
            "put {system} into its name, or choose one with --system"
        )
    logs = {one.name: Path(template.replace(_SYSTEM, file_name(one.name))) for one in blueprints}
    if len(set(logs.values())) < len(logs):
        raise UsageError(f"two of {names} would have a log of the same name; rename one of them")
    read = [config.path(one) for one in (config.queries, config.gold, config.corpus) if one]
    inputs = {os.path.realpath(name) for name in (*read, config.path(config.place.file))}
    for log in logs.values():
        if os.path.realpath(log) in inputs:
            raise UsageError(f"output {str(log)!r} is also an input; choose another name")
    return logs


def _queries(config: Config, request: Request, path: Path) -> tuple[list[Query], Source]:
    name = config.queries or config.gold
    if name is None:
        raise InputError("has no queries; name their file: queries: eval.jsonl", where=str(path))
    queries = read_queries(config.path(name), fields=config.for_queries)
    asked = queries_from(queries)
    for text in request.only:
        column, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--filter takes COLUMN=VALUE, not {text!r}")
        asked = _only(asked, column.strip(), value.strip())
    if request.limit is not None:
        asked = asked[: int(_number("--limit", request.limit, least=1, whole=True) or 0)]
    return asked, queries.source


def _only(queries: list[Query], column: str, value: str) -> list[Query]:
    columns = {_ID, *(name for query in queries for name in query.attributes)}
    if column not in columns:
        raise unknown("column of the queries", column, sorted(columns))
    kept = []
    for query in queries:
        has = query.query_id if column == _ID else query.attributes.get(column)
        if value in [str(one) for one in (has if isinstance(has, list) else [has])]:
            kept.append(query)
    if not kept:
        raise UsageError(f"--filter {column}={value} leaves no query")
    return kept


def _wishes(request: Request, config: Config, path: Path) -> Wishes:
    if request.resume and request.restart:
        raise UsageError("--resume goes on and --restart starts over; give one of them")
    concurrency = _number("--concurrency", request.concurrency, least=1, most=256, whole=True)
    retries = _number("--retries", request.retries, least=0, most=100, whole=True)
    return Wishes(
        k=_deepest(config),
        concurrency=None if concurrency is None else int(concurrency),
        rate=_number("--rate", request.rate, least=0.001),
        retries=None if retries is None else int(retries),
        max_failures=_number("--max-failures", request.max_failures, least=0, most=1),
        resume=request.resume,
        restart=request.restart,
        latency=request.latency,
        dataset_version=config.dataset_version,
        code_version=config.code_version or _revision(path.parent),
    )


def _deepest(config: Config) -> int:
    """How many hits systems return that do not say so: as many as a measure looks at, 50 at least.

    The measures that a profile brings by itself do not count: few services return so many.
    """
    named = (
        parse_measures(config.measures, conventions=config.conventions) if config.measures else []
    )
    cuts = [one.k for one in (*named, *(gate.measure for gate in config.gates))]
    return max([DEFAULT_K, *(cut for cut in cuts if isinstance(cut, int))])


def _number(
    option: str, text: str | None, *, least: float, most: float = 1e9, whole: bool = False
) -> float | None:
    if text is None:
        return None
    try:
        number = float(int(text)) if whole else float(text)
    except ValueError:
        number = float("nan")
    if least <= number <= most:
        return number
    kind = "a whole number" if whole else "a number"
    upto = "" if most >= 1e9 else f" to {most:g}"
    raise UsageError(f"{option} is {text!r}; {kind} from {least:g}{upto} is expected")


def _revision(folder: Path) -> str | None:
    """What git calls the code beside the karat.yaml, where there is git."""
    found = revision_here(folder)
    return None if found is None else f"{found.commit[:12]}{'-dirty' if found.dirty else ''}"


def show_searched(searched: Sequence[Searched], *, as_json: bool, quiet: bool) -> None:
    """Say what came of the calls, and leave with 3 if a run is partial."""
    if as_json:
        typer.echo(json.dumps([document(one) for one in searched], indent=2, ensure_ascii=False))
    elif not quiet:
        for one in searched:
            for line in lines_on(one):
                typer.echo(line)
    refuse_all_failed(searched)
    partial = [one.system for one in searched if one.partial]
    if partial:
        typer.echo(f"karat: partial: too many calls failed of {', '.join(partial)}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def refuse_all_failed(searched: Sequence[Searched]) -> None:
    """Refuse to go on with a system of which no call succeeded: nothing was measured."""
    if failed := [one.why_all_failed for one in searched if one.all_failed]:
        raise CallError("; ".join(failed))


def document(searched: Searched) -> dict[str, Any]:
    """What came of the calls, as plain data."""
    tally = searched.tally
    return {
        "system": searched.system,
        "log": str(searched.path),
        "calls": searched.calls,
        "failed": searched.failed,
        "partial": searched.partial,
        "reused": searched.reused,
        "asked": tally.asked,
        "retried": tally.retried,
        "fewer_than_k": tally.short,
        "without_score": tally.unscored,
        "without_text": searched.blank,
        "reasons": dict(tally.reasons.most_common()),
        "notes": list(searched.notes),
    }


def lines_on(searched: Searched) -> list[str]:
    """What came of the calls, for a reader."""
    tally = searched.tally
    earlier = searched.calls - tally.asked
    notes = [f"{searched.calls:,} calls"]
    if searched.reused:
        notes.append("log reused")
    elif earlier:
        notes.append(f"{earlier:,} from before")
    notes += [
        f"{number:,} {what}"
        for number, what in (
            (searched.failed, "failed"),
            (tally.retried, "tried again"),
            (tally.short, "with fewer hits than k"),
            (tally.unscored, "without scores"),
            (searched.blank, "of queries without text"),
        )
        if number
    ]
    lines = [f"{searched.system}: {', '.join(notes)} → {searched.path}"]
    lines += [f"  {note}" for note in searched.notes]
    lines += [f"  {count:,} × {reason}" for reason, count in tally.reasons.most_common(5)]
    if len(tally.reasons) > 5:
        lines.append(f"  and {len(tally.reasons) - 5:,} other reasons; the log has them all")
    return lines
