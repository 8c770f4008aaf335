"""Settings checked by type: a mapping goes into a form, or its first wrong key is told.

A field's description is what messages say that it must be, and what the reference prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from karat.errors import unknown
from karat.formats.yamls import Place, shown

REFUSED = "refused"


class Form(BaseModel):
    """Settings that take no key that they do not know and no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


F = TypeVar("F", bound=Form)


def refused(why: str) -> PydanticCustomError:
    """What a form's validator raises to say more than what a field must be."""
    return PydanticCustomError(REFUSED, "{why}", {"why": why})


def expectations(form: type[BaseModel]) -> dict[str, str]:
    """What each key of a form must be, by the name that it has in a file."""
    return {
        field.alias or name: field.description or "something else"
        for name, field in form.model_fields.items()
    }


def fill(form: type[F], data: Mapping[str, Any], place: Place) -> F:
    """The form with the data in it; what it does not take is refused with its line."""
    try:
        return form.model_validate(dict(data))
    except ValidationError as error:
        for key, inner in _inner_forms(form).items():
            _fill_inside(inner, data.get(key), place.at(key))
        key, what = refusal(error, data, expectations(form))
        raise place.at(key).error(what) from None


def _inner_forms(form: type[BaseModel]) -> dict[str, type[Form]]:
    """The forms that stand under keys of a form, alone or in a list."""

    def inside(kind: Any) -> type[Form] | None:
        if isinstance(kind, type) and not get_args(kind):
            return kind if issubclass(kind, Form) else None
        return next((one for one in map(inside, get_args(kind)) if one is not None), None)

    found = {
        field.alias or name: inside(field.annotation) for name, field in form.model_fields.items()
    }
    return {key: inner for key, inner in found.items() if inner is not None}


def _fill_inside(form: type[Form], data: Any, place: Place) -> None:
    """Refuse what is wrong inside, where the message can name its key and line."""
    if isinstance(data, Mapping):
        fill(form, data, place)
    for at, one in enumerate(data if isinstance(data, list) else ()):
        _fill_inside(form, one, place.at(at))


def refusal(
    error: ValidationError, data: Mapping[Any, Any], expected: Mapping[str, str]
) -> tuple[str, str]:
    """The key that a form does not take as it is, and what is wrong with it."""
    # A misspelled key is also a missing one, and the misspelling is what helps.
    kinds = ("extra_forbidden", "missing")
    found = sorted(error.errors(), key=lambda one: (*(one["type"] != kind for kind in kinds),))
    key = str(found[0]["loc"][0]) if found[0]["loc"] else ""
    if found[0]["type"] == "extra_forbidden":
        return key, str(unknown("key", key, expected))
    if found[0]["type"] == REFUSED:
        return key, found[0]["msg"]
    if found[0]["type"] == "missing":
        return key, f"{key} is missing; give {expected[key]}"
    return key, f"{key} is {shown(data.get(key))}; it must be {expected.get(key, 'something else')}"
