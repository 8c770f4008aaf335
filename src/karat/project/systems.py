"""The systems of a karat.yaml: built at first access, and planned for a search of all queries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from karat.data.columns import Source
from karat.data.revision import revision_here
from karat.errors import InputError, UsageError, unknown
from karat.formats.field_mapping import Fields
from karat.formats.readers import read_queries
from karat.jobs.cache import CACHE_FOLDER
from karat.measure.names import parse_measures
from karat.project.config import Config, read_config
from karat.retrieve.build_context import BuildContext
from karat.retrieve.index_cache import open_corpus
from karat.retrieve.protocol import Query, queries_from
from karat.retrieve.search import (
    SYSTEM_PLACEHOLDER,
    OpenBar,
    SearchOptions,
    SearchResult,
    log_paths,
    no_bar,
    search_system,
)
from karat.retrieve.system import DEFAULT_K, SearchSystem, build_system
from karat.retrieve.system_config import SystemConfig

CONFIG_FILE = "karat.yaml"


class Systems(Mapping[str, SearchSystem]):
    """Systems by name; indexing and loading models happen at the first access.

    Used in a ``with`` statement, it stops services that it started at the end of the block; else
    they stop when Python does.
    """

    def __init__(self, config: Config, context: BuildContext) -> None:
        self._system_configs = config.system_configs
        self._context = context
        self._built: dict[str, SearchSystem] = {}

    def __getitem__(self, name: str) -> SearchSystem:
        """Return the system of that name, ready to search."""
        if name not in self._system_configs:
            raise unknown("system", name, self._system_configs)
        if name not in self._built:
            self._built[name] = build_system(self._system_configs[name], self._context)
        return self._built[name]

    def __enter__(self) -> Systems:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what was started; systems that are used again are built again."""
        self._built.clear()
        self._context.ending.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._system_configs)

    def __len__(self) -> int:
        return len(self._system_configs)


def read_systems(path: str | Path) -> Systems:
    """Read the systems of a karat.yaml.

    ``read_systems("karat.yaml")["bm25"].search(queries, k=10)`` is a run.

    >>> bm25 = read_systems("karat.yaml")["bm25"]
    >>> bm25.search(karat.read_queries("queries.jsonl"), k=10).hits.height
    90
    """
    config = read_config(path)
    return Systems(config, build_context_of(config, Path(path).parent))


def build_context_of(
    config: Config,
    folder: Path,
    *,
    timeout: float | None = None,
    cache: str | Path | None = CACHE_FOLDER,
) -> BuildContext:
    """Return what a config's systems are built with; its corpus is read when first needed."""
    name = config.corpus
    kept = None if cache is None else folder / cache
    return BuildContext(
        corpus=None
        if name is None
        else lambda: open_corpus(config.path(name), kept, fields=config.mapping),
        reading=dict(config.mapping.given),
        folder=folder,
        cache=kept,
        timeout_given=timeout,
    )


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """The systems of a karat.yaml to search, the queries, and where the logs go."""

    config: Config
    system_configs: list[SystemConfig]
    queries: list[Query]
    context: BuildContext
    logs: dict[str, Path]
    options: SearchOptions

    def search(self, open_bar: OpenBar = no_bar) -> list[SearchResult]:
        """Ask every system every query and write the logs."""
        return [self.search_one(system_config, open_bar) for system_config in self.system_configs]

    def search_one(
        self, system_config: SystemConfig, open_bar: OpenBar = no_bar, *, digest: str | None = None
    ) -> SearchResult:
        """Ask one system every query and write its log."""
        return search_system(
            system_config,
            self.context,
            self.queries,
            self.logs[system_config.name],
            options=self.options,
            digest=digest,
            open_bar=open_bar,
        )


def plan_search(
    config: str | Path | None = None,
    *,
    systems: Sequence[str] | None = None,
    output: str | None = None,
    limit: int | None = None,
    only: Sequence[str] = (),
    timeout: float | None = None,
    fields: Fields | None = None,
    options: SearchOptions | None = None,
) -> SearchPlan:
    """Read a karat.yaml and its queries; refuse what is misspelled before any system is asked.

    ``only`` keeps queries with a value (``language=pt-BR``), ``limit`` the first so many.
    ``output`` names the logs, with ``{system}`` for each system's name.
    """
    options = options or SearchOptions()
    if options.resume and options.restart:
        raise UsageError("--resume continues a log and --restart starts over; give one of them")
    path = config_path(config)
    settings = read_config(path)
    settings = settings.model_copy(update={"mapping": settings.mapping.updated(fields or Fields())})
    system_configs = _chosen_systems(settings, systems)
    some = ".sample" if limit is not None or only else ""
    # A log of some queries does not replace the log of all.
    usual = str(Path(settings.path(settings.runs)) / f"{SYSTEM_PLACEHOLDER}{some}.jsonl")
    logs = log_paths(system_configs, output or usual)
    inputs = {os.path.realpath(name) for name in settings.files}
    for log in logs.values():
        if os.path.realpath(log) in inputs:
            raise UsageError(f"output {str(log)!r} is also an input; choose another name")
    queries, source = _chosen_queries(settings, path, only, limit)
    code_version = settings.code_version
    if code_version is None and (revision := revision_here(path.parent)) is not None:
        code_version = f"{revision.commit[:12]}{'-dirty' if revision.dirty else ''}"
    return SearchPlan(
        settings,
        system_configs,
        queries,
        build_context_of(settings, path.parent.absolute(), timeout=timeout, cache=options.cache),
        logs,
        replace(
            options,
            k=_deepest_cutoff(settings),
            dataset_version=settings.dataset_version,
            code_version=code_version,
            queries=source,
        ),
    )


def config_path(named: str | Path | None) -> Path:
    """Return the karat.yaml that is named, or that of the current folder."""
    if named is not None:
        return Path(named)
    if Path(CONFIG_FILE).is_file():
        return Path(CONFIG_FILE)
    raise UsageError("no karat.yaml in this folder; name one, such as path/to/karat.yaml")


def _chosen_systems(config: Config, names: Sequence[str] | None) -> list[SystemConfig]:
    system_configs = config.system_configs
    if not system_configs:
        raise config.place.error(
            "has no systems; add some, such as systems: {bm25: {retriever: bm25}}"
        )
    for name in names or ():
        if name not in system_configs:
            raise unknown("system", name, system_configs)
    return [system_configs[name] for name in dict.fromkeys(names or system_configs)]


def _chosen_queries(
    config: Config, path: Path, only: Sequence[str], limit: int | None
) -> tuple[list[Query], Source]:
    name = config.queries or config.gold
    if name is None:
        raise InputError("has no queries; name their file: queries: eval.jsonl", where=str(path))
    table = read_queries(config.path(name), fields=config.for_queries)
    queries = queries_from(table)
    for text in only:
        column, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--filter takes COLUMN=VALUE, not {text!r}")
        queries = _with_value(queries, column.strip(), value.strip())
    return queries[:limit], table.source


def _with_value(queries: list[Query], column: str, value: str) -> list[Query]:
    columns = {"query_id", *(name for query in queries for name in query.attributes)}
    if column not in columns:
        raise unknown("column of the queries", column, sorted(columns))
    matching = []
    for query in queries:
        values = query.query_id if column == "query_id" else query.attributes.get(column)
        if value in map(str, values if isinstance(values, list) else [values]):
            matching.append(query)
    if not matching:
        raise UsageError(f"--filter {column}={value} leaves no query")
    return matching


def _deepest_cutoff(config: Config) -> int:
    """Return k for systems that set none: the largest cut-off of a named measure, 50 at least.

    The measures that a profile brings do not count: few services return so many hits.
    """
    named = (
        parse_measures(config.measures, conventions=config.conventions) if config.measures else []
    )
    cutoffs = [measure.k for measure in (*named, *(gate.measure for gate in config.gates))]
    return max([DEFAULT_K, *(cutoff for cutoff in cutoffs if isinstance(cutoff, int))])
