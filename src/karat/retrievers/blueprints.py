"""Systems as a karat.yaml describes them, checked before anything is built or loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.errors import KaratError, unknown
from karat.formats.forms import Form, expectations, fill
from karat.formats.yamls import Place, shown
from karat.retrievers.chunkers import Chunker
from karat.retrievers.forms import CallsForm, Spec, StagesForm
from karat.retrievers.kinds import is_live, known_kinds, maker, parts_of


@dataclass(frozen=True, eq=False)
class Blueprint:
    """One system, or one part of one: what it retrieves with and what comes before and after."""

    name: str
    kind: str
    options: Form
    stages: StagesForm
    calls: CallsForm
    parts: Mapping[str, Blueprint]
    spec: Mapping[str, Any]
    place: Place

    @property
    def live(self) -> bool:
        """Whether it asks something whose state no digest can tell."""
        return is_live(self.kind) or any(part.live for part in self.parts.values())

    @property
    def chunker(self) -> Mapping[str, Any] | None:
        """How the corpus is cut for it; what a live system says of itself is for the log only."""
        return None if is_live(self.kind) else self.calls.chunker

    def meaning(self) -> dict[str, Any]:
        """What the system is, with other systems that it names written out."""
        if not self.parts:
            return dict(self.spec)
        return {**self.spec, "parts": {name: part.meaning() for name, part in self.parts.items()}}

    @property
    def digest(self) -> str:
        """The sha256 of the meaning; names in it stand as they are, secrets are never in it."""
        meaning = json.dumps(self.meaning(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(meaning.encode()).hexdigest()


def parse_systems(systems: Mapping[str, Any], place: Place) -> dict[str, Blueprint]:
    """Every system of a karat.yaml; whatever cannot be meant is refused with its line."""
    reader = _Reader(systems, place)
    return {name: reader.system(name, ()) for name in systems}


@dataclass(frozen=True)
class _Reader:
    systems: Mapping[str, Any]
    place: Place

    def system(self, name: str, around: tuple[str, ...]) -> Blueprint:
        if name in around:
            chain = " → ".join((*around, name))
            raise self.place.at(around[0]).error(f"system {around[0]!r} is made of itself: {chain}")
        return self.read(name, self.systems[name], self.place.at(name), (*around, name))

    def part(self, name: str, spec: Spec, place: Place, around: tuple[str, ...]) -> Blueprint:
        """A part by name (a system's, else a kind's) or in full."""
        if not isinstance(spec, str):
            made = self.read(name, spec, place, around)
            self._refuse_calls(made, place)
            return made
        # A system may be called like the kind that it uses.
        if spec in self.systems and (spec != around[-1] or spec not in known_kinds()):
            return self.system(spec, around)
        return self.read(name, {"retriever": spec}, place, around)

    def read(self, name: str, spec: Any, place: Place, around: tuple[str, ...]) -> Blueprint:
        if not isinstance(spec, dict):
            raise place.error(
                f"{name} is {shown(spec)}; a mapping is expected, such as {{retriever: bm25}}"
            )
        kind = spec.get("retriever")
        if not isinstance(kind, str):
            raise place.at("retriever").error(
                f"{name} has no retriever; name one of {', '.join(known_kinds())}"
            )
        if kind not in known_kinds() and kind in self.systems:
            return self._wrapped(name, kind, spec, place, around)
        try:
            made_by = maker(kind)
        except KaratError as error:
            raise place.at("retriever").error(str(error)) from None
        stages, calls, own = _split(spec)
        self._refuse_unknown(own, made_by.Options, kind, place)
        options = fill(made_by.Options, own, place)
        listed = isinstance(own.get("of"), list)
        parts = {
            part: self.part(part, one, place.at("of", at if listed else part), around)
            for at, (part, one) in enumerate(parts_of(made_by, options).items())
        }
        called = fill(CallsForm, calls, place)
        around_it = fill(StagesForm, stages, place)
        if around_it.k and around_it.k_raw and around_it.k_raw < around_it.k:
            raise place.at("k_raw").error(
                f"k_raw is {around_it.k_raw} and k {around_it.k}; k_raw is what k is cut from"
            )
        if called.chunker is not None and not is_live(kind):
            Chunker.of(called.chunker, place.at("chunker"))
        if called.chunker is not None and called.chunked is not None:
            raise place.at("chunked").error(
                "chunked says how the corpus was cut before, and chunker cuts it; keep one"
            )
        return Blueprint(
            name=name,
            kind=kind,
            options=options,
            stages=around_it,
            calls=called,
            parts=parts,
            spec=spec,
            place=place,
        )

    def _wrapped(
        self, name: str, inner: str, spec: Mapping[str, Any], place: Place, around: tuple[str, ...]
    ) -> Blueprint:
        """A system put around another one: ``retriever`` is its name, the rest are stages."""
        known = [*expectations(StagesForm), *expectations(CallsForm)]
        for key in _split(spec)[2]:
            what = unknown("key", key, known, inside=f"retriever: {inner}")
            raise place.at(key).error(str(what))
        # Limits such as a rate hold for whoever calls the system inside.
        of_inner = self.systems[inner] if isinstance(self.systems[inner], dict) else {}
        limits = {key: value for key, value in of_inner.items() if key in CallsForm.model_fields}
        alone = {**limits, **spec, "retriever": "fuse", "of": [inner]}
        return self.read(name, alone, place, around)

    def _refuse_unknown(
        self, own: Mapping[str, Any], options: type[Form], kind: str, place: Place
    ) -> None:
        known = expectations(options)
        everywhere = {**expectations(StagesForm), **expectations(CallsForm)}
        for key in own:
            if key not in known:
                what = unknown("key", key, [*known, *everywhere], inside=f"retriever: {kind}")
                raise place.at(key).error(str(what))

    def _refuse_calls(self, part: Blueprint, place: Place) -> None:
        for key in part.spec:
            if key in CallsForm.model_fields and key not in ("chunker", "chunked"):
                raise place.at(key).error(
                    f"{key} says how a system is called; give it to the system, not to its part"
                )


def _split(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A system's keys: those of its stages, of its calls, and of its retriever."""
    stages: dict[str, Any] = {}
    calls: dict[str, Any] = {}
    own: dict[str, Any] = {}
    in_stages, in_calls = expectations(StagesForm), expectations(CallsForm)
    for key, value in spec.items():
        if key != "retriever" and value is not None:
            home = stages if key in in_stages else calls if key in in_calls else own
            home[key] = value
    return stages, calls, own
