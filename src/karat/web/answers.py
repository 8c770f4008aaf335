"""OpenAPI models of the API's answers.

Routes write their JSON themselves; these models only describe it. Reports gain keys with new
versions of karat, so their models allow more keys than they name.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from karat.data.revision import Revision
from karat.store import LabelItem

Interval = Annotated[list[float | None], Field(min_length=2, max_length=2)]
# An item, its score and its grade; null if unknown.
Hit = Annotated[list[str | float | None], Field(min_length=3, max_length=3)]


class _Growing(BaseModel):
    """A part of a report, which may have more keys than these."""

    model_config = ConfigDict(extra="allow")


class InputFile(BaseModel):
    """An input file; data that was no file has no digest."""

    name: str
    sha256: str | None


class MeasureAnswer(BaseModel):
    """The mean of a measure, its interval and the number of queries."""

    mean: float | None
    ci: Interval | None
    n: int
    better: str


class EvaluationInputs(BaseModel):
    """The files that an evaluation was made from."""

    run: InputFile
    gold: InputFile
    queries: InputFile | None
    corpus: InputFile | None


class EvaluationAnswer(BaseModel):
    """A stored evaluation; ``report_id`` is the report that it was saved with."""

    id: int
    report_id: int
    saved_at: str
    system: str
    tags: list[str]
    revision: Revision | None
    note: str | None
    verdict: str | None
    karat: str
    measures: dict[str, MeasureAnswer]
    conventions: dict[str, Any]
    inputs: EvaluationInputs
    meta: dict[str, Any]


class EvaluationsAnswer(BaseModel):
    """A page of evaluations, newest first."""

    evaluations: list[EvaluationAnswer]
    total: int
    page: int
    pages: int


class TrendPointAnswer(BaseModel):
    """One evaluation in a trend; ``breaks`` names what changed so that it is not comparable."""

    id: int
    saved_at: str
    system: str
    mean: float | None
    n: int
    ci: Interval | None
    change: float | None
    breaks: list[str]
    revision: Revision | None
    gold: InputFile
    tags: list[str]


class TrendAnswer(BaseModel):
    """A measure over time, system by system."""

    measure: str
    points: list[TrendPointAnswer]


class ReportMeasure(_Growing):
    """A measure of a system in a report."""

    mean: float | None
    ci: Interval | None
    n: int
    ceiling: float | None
    better: str


class ReportSystem(_Growing):
    """A system in a report."""

    name: str
    measures: dict[str, ReportMeasure]
    counts: dict[str, int]
    meta: dict[str, Any] = {}
    segments: dict[str, dict[str, dict[str, Any]]] = {}


class ReportInputs(_Growing):
    """The files that a report was made from."""

    gold: InputFile
    runs: list[InputFile]
    queries: InputFile | None
    corpus: InputFile | None


class ReportComparison(_Growing):
    """A difference between two systems on one measure, overall or in a segment."""

    baseline: str
    system: str
    measure: str
    segment: dict[str, str] | None
    primary: bool
    better: str
    n: int
    baseline_mean: float | None
    system_mean: float | None
    delta: float | None
    ci: Interval | None
    p: float | None
    p_adjusted: float | None
    tests: int = 1
    verdict: str | None
    regression: bool
    caution: bool = False
    because: str


class ReportDecision(_Growing):
    """The decision on two systems."""

    baseline: str
    system: str
    measure: str
    verdict: str
    regression: bool
    because: str
    cautions: list[dict[str, Any]] = []


class ReportGate(_Growing):
    """A gate and its verdict."""

    system: str
    measure: str
    verdict: str
    because: str


class ReportAnswer(_Growing):
    """A report as karat eval -o report.json writes it."""

    schema_version: int
    tool: dict[str, str]
    conventions: dict[str, Any]
    counts: dict[str, int]
    systems: list[ReportSystem]
    inputs: ReportInputs
    verdict: str | None = None
    rule: dict[str, Any] = {}
    comparisons: list[ReportComparison] = []
    decisions: list[ReportDecision] = []
    reversals: list[str] = []
    gates: list[ReportGate] = []
    findings: list[str] = []
    findings_of: str | None = None


class ComparisonAnswer(ReportAnswer):
    """A comparison as karat compare writes it, and warnings."""

    warnings: list[str]


class SegmentRows(BaseModel):
    """The segments of a column, and their numbers for each query."""

    names: list[str]
    of: list[list[int]]


class RowsAnswer(BaseModel):
    """Every query, column by column; columns of systems have one list per system.

    ``status`` and ``class`` are positions in the names of the page's head; class -1 is no miss.
    """

    query_id: list[str]
    text: list[str | None]
    gold: list[int]
    status: list[list[int]]
    values: dict[str, list[list[float | None]]]
    rank: list[list[int | None]]
    miss_class: list[list[int]] = Field(alias="class")
    unjudged: list[list[int]]
    different: list[float]
    segments: dict[str, SegmentRows]


class GoldDetail(BaseModel):
    """An item of the gold, its grade, and its rank in each list of each system."""

    item_id: str
    doc_id: str | None
    grade: float | None
    in_corpus: bool | None
    version: str | None
    section: str | None
    ranks: list[dict[str, int]]
    bm25: int | None


class SystemDetail(BaseModel):
    """The result of a system for a query."""

    status: str
    error: str | None
    miss_class: str | None = Field(alias="class")
    because: str | None
    searched: int | None
    hits: list[Hit]
    calls: dict[str, Any]


class ItemText(BaseModel):
    """The text of an item; ``cut`` if it is longer."""

    text: str
    cut: bool
    title: str | None


class QueryAnswer(BaseModel):
    """One query in full: its gold, the list of every system and BM25's, and their texts."""

    index: int
    query_id: str
    text: str | None
    note: str | None
    attributes: dict[str, Any]
    gold: list[GoldDetail]
    gold_left_out: int
    systems: list[SystemDetail]
    bm25: list[Hit] | None
    negatives: list[str]
    texts: dict[str, ItemText]


class RaterProgress(BaseModel):
    """The progress of a rater; ``judged`` includes "can't tell"."""

    rater: str
    judged: int
    cannot_tell: int
    of: int
    finished: bool


class SetAnswer(BaseModel):
    """A set and the progress of its raters; ``own`` is that of the rater who asks."""

    id: int
    name: str
    made_at: str
    size: int
    about: str
    raters: list[RaterProgress]
    own: RaterProgress | None = None


class SetsAnswer(BaseModel):
    """Every set, newest first."""

    sets: list[SetAnswer]


class NextAnswer(BaseModel):
    """The next item of a rater, null if all are judged."""

    item: LabelItem | None
    judged: int


class OwnJudgment(BaseModel):
    """A judgment of the rater who asks."""

    position: int
    grade: float | None
    rationale: str


class JudgedAnswer(BaseModel):
    """The judgment that was added or withdrawn, and the rater's next item."""

    judgment: OwnJudgment | None
    judged: int
    next: int | None


class PairAgreement(BaseModel):
    """The agreement of two raters; ``because`` says why a number is null."""

    raters: list[str]
    n: int
    same: int
    share: float | None
    kappa: float | None
    kappa_linear: float | None
    because: str | None


class MajorityCounts(BaseModel):
    """The number of items with a majority grade, and of those without, by reason."""

    graded: int
    ties: int
    cannot_tell: int
    unjudged: int


class TieAnswer(BaseModel):
    """An item on which no grade has a majority, with every rater's grade."""

    query_id: str
    item_id: str
    grades: dict[str, float]


class AgreementAnswer(BaseModel):
    """The agreement of raters; ``few`` is the number of common items that a kappa needs."""

    set: int
    size: int
    few: int
    raters: list[RaterProgress]
    pairs: list[PairAgreement]
    majority: MajorityCounts
    ties: list[TieAnswer]


class RunProgress(BaseModel):
    """The progress of a system; ``what`` is calls, reused, or what is being built."""

    system: str | None
    what: str
    done: int
    total: int


class SavedByRun(BaseModel):
    """A saved evaluation of a run."""

    id: int
    system: str | None
    verdict: str | None


class RunAnswer(BaseModel):
    """A run that is running, stopping, done, failed or stopped; ``why`` is karat's message.

    With exit code 1 it is done: a gate fails, and that is its verdict.
    """

    id: int
    url: str
    systems: list[str]
    tags: list[str]
    fresh: bool
    state: str
    exit_code: int | None
    meaning: str
    why: str | None
    saved: list[int]
    evaluations: list[SavedByRun]
    progress: list[RunProgress]
    log: list[str]
    last: int


class RunsAnswer(BaseModel):
    """Every run since the server started, the latest first."""

    runs: list[RunAnswer]


class HitAnswer(BaseModel):
    """One hit; ``grade`` is null unless the text is a query of the eval set."""

    item_id: str
    score: float | None
    rank: int
    text: str | None
    cut: bool
    grade: float | None


class RelevantItem(BaseModel):
    """A relevant item and its rank; null if it is not among the hits."""

    item_id: str
    grade: float
    rank: int | None


class SearchAnswer(BaseModel):
    """The result of a search."""

    system: str
    query_id: str | None
    latency_ms: float | None
    rewritten: str | None
    source: str | None
    hits: list[HitAnswer]
    gold: list[RelevantItem]
    error: str | None


class SystemAbout(BaseModel):
    """A system by its name and kind; ``live`` ones can change without the karat.yaml."""

    name: str
    retriever: str
    live: bool
    k: int | None
    built: bool


class SystemsAnswer(BaseModel):
    """The systems of the karat.yaml, and the inputs beside them."""

    config: str
    systems: list[SystemAbout]
    corpus: bool
    queries: int
    rel: float
    note: str | None


class Suggestion(BaseModel):
    """A query of the eval set."""

    query_id: str
    text: str


class SuggestionsAnswer(BaseModel):
    """Matching queries of the eval set, and their total number."""

    queries: list[Suggestion]
    total: int
