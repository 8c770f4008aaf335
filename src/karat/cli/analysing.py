"""What the commands that say what to fix next share: runs read stage by stage, a page shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import typer

from karat.analysis.contenders import distinct_names
from karat.analysis.staged import KEEP, Staged, score_stages
from karat.cli.progress import progress
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.cli.scoring import Ready, Request, ready
from karat.columns import Source
from karat.formats import scan_run
from karat.measures.names import Measure
from karat.reports.document import input_of, utf8
from karat.reports.figures import label
from karat.reports.origins import origin_inputs
from karat.reports.outputs import (
    PAGE_FORMS,
    PICTURES,
    Form,
    Output,
    parse_outputs,
    write_outputs,
    write_stdout,
)
from karat.reports.pages import Page, Paper, show_page
from karat.reports.to_json import to_json
from karat.tables import Blocks, Run


@dataclass(frozen=True, eq=False)
class Subject:
    """The runs to be looked into, each scored stage by stage, and what they were scored with.

    ``scans`` are the runs themselves, to be scored again in another way. ``more_inputs`` are
    files beside the runs, by what they hold.
    """

    given: Ready
    runs: Mapping[str, Staged]
    scans: Mapping[str, Run | Blocks]
    more_inputs: Mapping[str, Source] = field(default_factory=dict)

    def paper(
        self,
        body: Mapping[str, Any],
        page_of: Callable[[Mapping[str, Any]], Page],
        *,
        baseline: Source | None = None,
    ) -> Paper:
        """The analysis ready to be shown or written."""
        given = self.given
        conventions = [staged.final.conventions for staged in self.runs.values()]
        same = len({one.order for one in conventions}) == 1
        if "systems" in body:
            told = zip(body["systems"], self.runs.values(), strict=True)
            own = [{**system, **own_affairs(staged, order=not same)} for system, staged in told]
            body = {**body, "systems": own}
        return Paper(
            body,
            conventions[0] if same else replace(conventions[0], order=None),
            given.gold.source,
            [staged.final.source for staged in self.runs.values()],
            page_of,
            queries=None if given.queries is None else given.queries.source,
            corpus=None if given.corpus is None else given.corpus.source,
            more_inputs=({"fields": dict(given.fields.given)} if given.fields else {})
            | {name: input_of(source) for name, source in self.more_inputs.items()}
            | ({} if baseline is None else {"baseline": input_of(baseline)})
            | origin_inputs([one.final.meta for one in self.runs.values()], given.queries),
        )


def own_affairs(staged: Staged, *, order: bool = False) -> dict[str, Any]:
    """What is a run's own affair: its gaps, and what ranks it where that is not the same."""
    final = staged.final
    own: dict[str, Any] = {"counts": final.counts.document()}
    if final.nothing_found:
        own["nothing_found"] = final.nothing_found
    if order:
        own["conventions"] = {"order": final.conventions.order}
    return own | ({"partial": True} if final.partial else {})


def subject_of(
    request: Request,
    measures: Sequence[Measure] | None = None,
    *,
    keep: int = KEEP,
    given: Ready | None = None,
    of_stages: Sequence[Measure] | None = None,
    pair: Callable[[Sequence[Run | Blocks]], Run | None] = lambda runs: None,
) -> Subject:
    """Read everything and score every run; ``measures`` in place of those of the request.

    The lists of earlier stages are scored by the same ones, or by those ``of_stages``. ``pair``
    may make one run of all of them.
    """
    read = given or ready(request)
    staged: list[Staged] = []
    scans: list[Run | Blocks] = []
    for name in request.runs:
        run = scan_run(
            name, format=request.run_format, strict=request.strict, fields=request.fields
        )
        # A pipe can be read once only.
        scans.append(run.read() if name == "-" else run)
    one = pair(scans)
    inputs: dict[str, Source] = {}
    if one is not None:
        inputs, scans = {"raw": scans[0].source}, [one]
    with progress(request.runs, quiet=request.quiet) as begin:
        for name, run in zip(request.runs[-len(scans) :], scans, strict=True):
            begin(name)
            lenient = read.lenient if measures is None else measures
            chosen = read.measures if measures is None else measures
            staged.append(
                score_stages(
                    run, read.prepared, chosen, lenient=lenient, keep=keep, of_stages=of_stages
                )
            )
    request.fields.check()
    names = distinct_names([utf8(one.final.system) for one in staged])
    scored = dict(zip(names, staged, strict=True))
    return Subject(read, scored, dict(zip(names, scans, strict=True)), inputs)


def page_outputs(
    request: Request,
    texts: Sequence[str],
    *,
    forms: Mapping[str, Form] = PAGE_FORMS,
    stdout_taken: bool,
    inputs: Sequence[str] = (),
) -> list[Output]:
    """Every ``-o``; a picture that could not be drawn later is refused before any work."""
    read = [*request.files(), *inputs]
    outputs = parse_outputs(texts, inputs=read, stdout_taken=stdout_taken, forms=forms)
    if any(output.form.name in PICTURES for output in outputs):
        from karat.reports.charts import check_charts

        check_charts()
    return outputs


def publish_paper(paper: Paper, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, print the page unless something else goes to standard output, and leave.

    The exit code is 3 where not one query could be scored, or too many calls failed.
    """
    write_outputs(outputs, paper)
    if as_json:
        write_stdout(to_json(paper))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.reports.terminal import standard_console

        show_page(paper.page(), standard_console())
    leave_in_doubt(paper.body.get("systems", ()))


def leave_in_doubt(systems: Sequence[Mapping[str, Any]]) -> None:
    """Leave with 3 where nothing can be told of any system, or too little of one."""
    if doubt := _doubt(systems):
        typer.echo(f"karat: cannot tell: {doubt}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def _doubt(systems: Sequence[Mapping[str, Any]]) -> str:
    """Why nothing can be told; empty where something can."""
    counts = [system["counts"] for system in systems if "counts" in system]
    if counts and not any(one["scored"] + one["no_answer"] + one["empty_gold"] for one in counts):
        return "not one query could be scored"
    partial = [label(system["name"]) for system in systems if system.get("partial")]
    return f"too many calls of {', '.join(partial)} failed" if partial else ""
