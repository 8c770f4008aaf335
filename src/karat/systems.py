"""The systems of a karat.yaml, built when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from karat.config import Config, read_config
from karat.errors import unknown
from karat.formats import read_corpus
from karat.own_folder import OWN_FOLDER
from karat.retrievers.system import System
from karat.retrievers.workshop import Workshop


class Systems(Mapping[str, System]):
    """Systems by name; indexing and loading models happen at the first access.

    Used in a ``with`` statement, services that were started end with it; else they end when
    Python does.
    """

    def __init__(self, config: Config, workshop: Workshop) -> None:
        self._blueprints = config.blueprints
        self._workshop = workshop
        self._built: dict[str, System] = {}

    def __getitem__(self, name: str) -> System:
        """The system of that name, ready to search."""
        if name not in self._blueprints:
            raise unknown("system", name, self._blueprints)
        if name not in self._built:
            self._built[name] = self._workshop.build(self._blueprints[name])
        return self._built[name]

    def __enter__(self) -> Systems:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what was started; a system that is asked for again is built anew."""
        self._built.clear()
        self._workshop.ending.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._blueprints)

    def __len__(self) -> int:
        return len(self._blueprints)


def read_systems(path: str | Path) -> Systems:
    """The systems of a karat.yaml: ``read_systems("karat.yaml")["bm25"].search(queries, k=10)``."""
    config = read_config(path)
    return Systems(config, workshop_of(config, Path(path).parent))


def workshop_of(config: Config, folder: Path, *, timeout: float | None = None) -> Workshop:
    """Where the systems of a config are built; its corpus is read when first needed."""
    name = config.corpus
    return Workshop(
        corpus=None
        if name is None
        else lambda: read_corpus(config.path(name), fields=config.mapping),
        reading=dict(config.mapping.given),
        folder=folder,
        cache=folder / OWN_FOLDER,
        timeout_given=timeout,
    )
