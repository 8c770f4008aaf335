"""The settings of an A/B harness that are honoured, each with what it must be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from karat.formats.forms import Form
from karat.retrievers.forms import Count, Finite, Share, Text

FUSES = "score_interp"


class EngineForm(Form):
    """What stands at the top of a config."""

    k_surface: Annotated[int, Field(ge=1, le=4096)] = Field(
        32, description="the number of dimensions of a text's vector, from 1 to 4096"
    )


class PerfForm(Form):
    """The first part of the gate for traces."""

    enabled: bool = Field(False, description="true or false")


class MetricsForm(Form):
    """The second part of the gate for traces, and where they go."""

    report_memory: bool = Field(False, description="true or false")
    trace_dir: Text | None = Field(None, description="a folder for traces")
    trace_reason: Text | None = Field(None, description="the reason that shadow traces give")


class RetrievalForm(Form):
    """Which items are candidates; without limits every item is one."""

    k_retrieval: Count | None = Field(None, description="how many candidates, from 1")
    sim_threshold: Annotated[float, Field(ge=-1, le=1)] | None = Field(
        None, description="the lowest cosine of a candidate, from -1 to 1"
    )


class RankingForm(Form):
    """What the base score is made of."""

    alpha_sim: Finite = Field(0.75, description="the weight of likeness, a number")
    beta_recency: Finite = Field(0.2, description="the weight of recency, a number")
    gamma_importance: Finite = Field(0.05, description="the weight of importance, a number")


class QualityForm(Form):
    """Whether the quality path is on, and how it is traced."""

    enabled: bool = Field(False, description="true or false")
    shadow: bool = Field(False, description="true or false")
    redact: bool = Field(True, description="true or false")
    trace_dir: Text | None = Field(None, description="a folder for traces")


class LexicalForm(Form):
    """BM25 over the candidates."""

    bm25_k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1.2, description="a number from 0"
    )
    bm25_b: Share = Field(0.75, description="a share from 0 to 1")
    stopwords: Literal["en-basic", "none"] = Field("en-basic", description="en-basic or none")


class FusionForm(Form):
    """How the base ranking and the lexical one become one."""

    mode: Text = Field(FUSES, description=f"{FUSES}, the one mode that fuses")
    alpha_semantic: Share = Field(0.6, description="the base ranking's share, from 0 to 1")


class NormalizerForm(Form):
    """How texts become words."""

    enabled: bool = Field(True, description="true or false")
    case: str = Field("lower", description="lower")
    unicode: str = Field("NFKC", description="NFKC")


class AliasingForm(Form):
    """Words that stand for others."""

    map_path: str | None = Field(None, description="a YAML file of words and their meanings")


class DiversityForm(Form):
    """Diversification of the list."""

    enabled: bool = Field(False, description="true or false")
    weight: Share = Field(0.5, alias="lambda", description="diversity's share, from 0 to 1")
    k: int | None = Field(None, description="how many places to fill this way, a whole number")


@dataclass(frozen=True)
class Settings:
    """The settings that are honoured."""

    engine: EngineForm
    perf: PerfForm
    metrics: MetricsForm
    retrieval: RetrievalForm
    ranking: RankingForm
    quality: QualityForm
    lexical: LexicalForm
    fusion: FusionForm
    normalizer: NormalizerForm
    aliasing: AliasingForm
    mmr: DiversityForm

    @property
    def traced(self) -> bool:
        """The triple gate, without which no trace is written."""
        on = self.quality.shadow or self.quality.enabled
        return self.perf.enabled and self.metrics.report_memory and on

    @property
    def fuses(self) -> bool:
        """Whether the lexical score has a say."""
        return self.quality.enabled and self.fusion.mode == FUSES

    @property
    def diversifies(self) -> bool:
        """Whether items are chosen to differ from those above them."""
        return self.quality.enabled and self.mmr.enabled

    @property
    def alias_file(self) -> Path | None:
        """The file of aliases as the config names it, if there is a use for one."""
        named = self.aliasing.map_path if self.quality.enabled else None
        return Path(named).expanduser() if named else None
