"""From a run to its worst queries: the corpus from its kept index, BM25 on the spot, a page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from karat.analysis.failures.classes import classify
from karat.analysis.playbook.findings import findings
from karat.analysis.rescored import rescored
from karat.analysis.staged import KEEP, Staged
from karat.analysis.thresholds import parse_thresholds
from karat.analysis.triage.triage import BM25_DEPTH, Triage
from karat.cli.analysing import leave_in_doubt, own_affairs, subject_of
from karat.cli.numbers import whole
from karat.cli.scoring import Request, ready
from karat.errors import UsageError
from karat.measures.names import Measure
from karat.measures.scores import Scores
from karat.own_folder import OWN_FOLDER
from karat.reports.bm25_lists import bm25_lists
from karat.reports.outputs import PAGE_FORMS, Form, Output, forms_of, write_outputs, write_stdout
from karat.reports.to_json import to_json
from karat.reports.triage import Triaged, page_of
from karat.retrievers.corpus_index import CorpusIndex

_MISSES = Form("misses", None, "every miss: query, retrieved, relevant", "triage.to_misses")
FORMS = {**PAGE_FORMS, **forms_of(_MISSES)}
_CONFIG = "karat.yaml"


@dataclass(frozen=True)
class Wish:
    """What ``karat triage`` was asked for besides what every scoring is."""

    request: Request
    worst: str = "20"
    query_ids: Sequence[str] = ()
    lines: Sequence[str] = ()
    cache: str = OWN_FOLDER


def triage_run(wish: Wish) -> Triaged:
    """Read everything, score the run, and look at the worst queries or at those named."""
    request = wish.request
    _check_one(request.runs)
    if not wish.cache:
        raise UsageError("--cache is empty; name a folder, such as .karat")
    lines = parse_thresholds(wish.lines, request.profile)
    worst = whole("--worst", wish.worst)
    given = ready(replace(request, index_in=Path(wish.cache)))
    measure = _measure(given.measures, request)
    keep = max(KEEP, lines.miss, lines.far)
    subject = subject_of(request, [measure], keep=keep, given=given, of_stages=[])
    staged = next(iter(subject.runs.values()))
    staged, measure = _within(staged, measure, named=bool(request.measures))
    triage = Triage(staged, measure, classify(staged, given.queries, lines=lines), given.queries)
    found = findings(staged, given.queries, lines=lines, by=given.by)
    rows = triage.chosen(wish.query_ids) if wish.query_ids else triage.worst(worst)
    body = {
        "measure": str(measure),
        "system": next(iter(subject.runs)),
        **own_affairs(staged),
        "worst": None if wish.query_ids else worst,
        **_looked_at(triage, rows, given.index, wish),
        "failures": triage.failures.document(),
        "segments": {str(by): triage.by_segment(by) for by in given.by},
        "lines": lines.document(),
        "findings": [one.sentence for one in found.findings],
    }
    return Triaged(subject.paper(body, page_of), triage)


def _within(staged: Staged, measure: Measure, *, named: bool) -> tuple[Staged, Measure]:
    """The run by the usual measure where its lists were cut, unless another was named."""
    cut = staged.final.cut
    if named or cut is None or str(measure) not in cut.beyond or not cut.depth:
        return staged, measure
    nearer = replace(measure, k=cut.depth)
    return replace(staged, final=rescored(staged, [nearer])), nearer


def _looked_at(
    triage: Triage, rows: Sequence[int], index: CorpusIndex | None, wish: Wish
) -> dict[str, Any]:
    """The queries in full, and how far down their lists were looked through."""
    bm25, lacks = bm25_of(triage, rows, index)
    meta = triage.staged.final.meta
    return {
        "queries": [
            case | commands(wish, case["query_id"], meta)
            for case in triage.cases(rows, items=index, bm25=bm25)
        ],
        "depth": triage.depths(),
        "bm25": {"lacks": lacks} if bm25 is None else {"depth": BM25_DEPTH},
    }


def bm25_of(
    triage: Triage, rows: Sequence[int], index: CorpusIndex | None
) -> tuple[Scores | None, str | None]:
    """BM25's own lists for some queries, scored as the run is; or what is lacking for them."""
    asked = {row: text for row in rows if (text := triage.text(row)) is not None}
    return bm25_lists(index, triage.staged.gold, asked, BM25_DEPTH)


def commands(wish: Wish, query_id: str, meta: Mapping[str, Any]) -> dict[str, str]:
    """What shows a query again, and what asks it again where a karat.yaml is at hand."""
    shown = {"reproduce": shlex.join([*_as_typed(wish), "--query", query_id])}
    if "config" not in meta or not meta.get("system") or not Path(_CONFIG).is_file():
        return shown
    safe = "".join(one if one.isalnum() or one in "-_." else "_" for one in query_id)
    asking = ["karat", "search", _CONFIG, "--system", str(meta["system"])]
    asking += ["--filter", f"query_id={query_id}", "-o", f"{safe}.jsonl"]
    return {**shown, "ask_again": shlex.join(asking)}


def _as_typed(wish: Wish) -> list[str]:
    """The command as it was given, without what only says how much of it is shown where."""
    request = wish.request
    single = {
        "--gold": request.gold,
        "--queries": request.queries,
        "--corpus": request.corpus,
        "--cache": None if wish.cache == Wish.cache else wish.cache,
        "--profile": None if request.profile == Request.profile else request.profile,
        "--run-format": request.run_format,
        "--gold-format": request.gold_format,
    }
    several = {"-m": request.measures or (), "--set": request.settings, "--line": wish.lines}
    several["--field"] = request.fields.texts()
    words = ["karat", "triage", *request.runs]
    words += [word for name, one in single.items() if one is not None for word in (name, one)]
    words += [word for name, own in several.items() for one in own for word in (name, one)]
    return [*words, "--strict"] if request.strict else words


def _check_one(runs: Sequence[str]) -> None:
    if len(runs) > 1:
        raise UsageError(
            f"triage looks into one run, not {len(runs)}; give one of them, or see what sets "
            "two apart with karat compare"
        )


def _measure(measures: Sequence[Measure], request: Request) -> Measure:
    """The one that was named, else the first of the profile's by which queries can be bad."""
    if request.measures is None:
        return next(one for one in measures if one.definition.better != "none")
    if len(measures) > 1:
        raise UsageError(f"one measure makes queries bad, not {len(measures)}; give -m one of them")
    return measures[0]


def publish(triaged: Triaged, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, then print the page unless something else goes to standard output."""
    write_outputs(outputs, triaged)
    if as_json:
        write_stdout(to_json(triaged))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.reports.terminal import standard_console
        from karat.reports.triage_terminal import show_triage

        show_triage(triaged.paper.results(), standard_console())
    body = triaged.paper.body
    leave_in_doubt([{**body, "name": body["system"]}])
