"""What a system in a karat.yaml may say, whatever it retrieves with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from karat.formats.forms import Form, refused

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(pattern=r"\S")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Scalar = str | int | Finite | bool
# How a corpus was cut: a log says it, so it says something.
Cutting = Annotated[dict[Text, Scalar], Field(min_length=1)]
# A system's name, a retriever's name, or a mapping with a retriever of its own.
Spec = str | dict[str, Any]


class NormaliseForm(Form):
    """How texts are made alike before words are compared."""

    unicode: Literal["NFC", "NFKC", "none"] = Field("NFKC", description="NFC, NFKC or none")
    case: Literal["lower", "fold", "none"] = Field("lower", description="lower, fold or none")


class RewriteForm(Form):
    """A callable that rewrites the query before it is searched for."""

    call: Text = Field(description="module:callable or file.py:callable")
    both: bool = Field(False, description="true to search for the original text as well")


class RerankForm(Form):
    """A model or a callable that scores the top of the list anew."""

    model: Text | None = Field(None, description="the name of a fastembed model")
    call: Text | None = Field(
        None, description="module:callable or file.py:callable, instead of a model"
    )
    path: Text | None = Field(None, description="a folder that holds the model's files")
    kind: Literal["cross", "bi"] = Field("cross", description="cross or bi")
    top: Count | None = Field(
        None, description="how many hits to rerank, from 1; all of k_raw if absent"
    )
    max_length: Count | None = Field(None, description="how many tokens of a text are read, from 1")
    threads: Count | None = Field(None, description="how many threads the model may use, from 1")

    @model_validator(mode="after")
    def _agree(self) -> RerankForm:
        given = self.model_fields_set
        if (self.model is None) == (self.call is None):
            both = "both are given" if self.model is not None else "neither is given"
            raise refused(f"rerank takes either a model or a call, and {both}")
        of_models = [key for key in ("path", "kind", "max_length", "threads") if key in given]
        if self.call is not None and of_models:
            raise refused(f"{of_models[0]} is for a model; leave it out beside call")
        return self


class MmrForm(Form):
    """Diversification: relevance against likeness to what is already chosen."""

    weight: Share = Field(
        0.5,
        alias="lambda",
        description="a share from 0 to 1: of relevance, or with variant ab of diversity",
    )
    variant: Literal["textbook", "ab"] = Field("textbook", description="textbook or ab")
    top: Count | None = Field(
        None, description="how many places to fill this way, from 1; all if absent"
    )


def _one_or_form(given: Any) -> Any:
    return {"call": given} if isinstance(given, str) else given


def _true_or_form(given: Any) -> Any:
    return {} if given is True else None if given is False else given


class StagesForm(Form):
    """What happens before and after retrieving, in the order in which it happens."""

    k: Count | None = Field(
        None, description="how many hits to return, a whole number from 1; 50 if absent"
    )
    k_raw: Count | None = Field(
        None, description="how many hits to retrieve before later stages, from 1"
    )
    normalise: Annotated[NormaliseForm | None, BeforeValidator(_true_or_form)] = Field(
        None, description="true, or a mapping with unicode and case"
    )
    aliases: dict[str, str] | Text | None = Field(
        None, description="a mapping of words to what they stand for, or a YAML file of one"
    )
    rewrite: Annotated[RewriteForm | None, BeforeValidator(_one_or_form)] = Field(
        None, description="module:callable, or a mapping with call and both"
    )
    filter: dict[str, Scalar | list[Scalar]] = Field(
        default_factory=dict,
        description="a mapping of attributes to values, lists of values or {column} of the query",
    )
    as_of: bool | Literal["strict"] = Field(
        False, description="true, or strict to drop items of unknown version too"
    )
    threshold: Finite | None = Field(None, description="the lowest score that is kept, a number")
    rerank: RerankForm | None = Field(None, description="a mapping with a model or a call")
    distinct_docs: Finite | None = Field(
        None, description="what the first item of each document gains, a number such as 0.2"
    )
    mmr: Annotated[MmrForm | None, BeforeValidator(_true_or_form)] = Field(
        None, description="true, or a mapping with lambda and variant"
    )


class CallsForm(Form):
    """How a system is called, and what the log says of it."""

    concurrency: Annotated[int, Field(ge=1, le=256)] | None = Field(
        None, description="how many calls may run at once, from 1 to 256"
    )
    batch: Count | None = Field(None, description="how many queries to search for at once, from 1")
    rate: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="how many calls a second at most, a number above 0"
    )
    timeout: Seconds = Field(30.0, description="seconds that one call may take, above 0")
    retries: Annotated[int, Field(ge=0, le=100)] = Field(
        3, description="how often to try again what may pass later, from 0 to 100"
    )
    max_failures: Share = Field(
        0.05, description="the share of failed calls past which the run is partial"
    )
    index_version: Text | None = Field(None, description="the version of the index, as text")
    chunker: Cutting | None = Field(
        None, description="a mapping with algo, such as {algo: fixed, size: 1200, overlap: 200}"
    )
    chunked: Cutting | None = Field(
        None,
        description="a mapping that says how the corpus was cut before, for the log: names with "
        "texts, finite numbers or true and false",
    )
