"""What the commands that say what to fix next share: runs read stage by stage, a page shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.analysis.contenders import distinct_names
from karat.analysis.staged import Staged, score_stages
from karat.cli.progress import progress
from karat.cli.scoring import Ready, Request, ready
from karat.formats import scan_run
from karat.measures.names import Measure
from karat.reports.document import utf8
from karat.reports.outputs import Output, write_outputs, write_stdout
from karat.reports.pages import Page, Paper, show_page
from karat.reports.to_json import to_json

# How many of the top items of every query are kept to look at.
TOP = 10


@dataclass(frozen=True, eq=False)
class Subject:
    """The runs to be looked into, each scored stage by stage, and what they were scored with."""

    given: Ready
    runs: Mapping[str, Staged]

    def paper(self, body: Mapping[str, Any], page_of: Callable[[Mapping[str, Any]], Page]) -> Paper:
        """The analysis ready to be shown or written."""
        given = self.given
        first = next(iter(self.runs.values())).final
        return Paper(
            body,
            first.conventions,
            given.gold.source,
            [staged.final.source for staged in self.runs.values()],
            page_of,
            queries=None if given.queries is None else given.queries.source,
            corpus=None if given.corpus is None else given.corpus.source,
        )


def subject_of(
    request: Request,
    measures: Sequence[Measure] | None = None,
    *,
    keep: int = TOP,
    given: Ready | None = None,
) -> Subject:
    """Read everything and score every run; ``measures`` in place of those of the request."""
    read = given or ready(request)
    staged = []
    with progress(request.runs, quiet=request.quiet) as begin:
        for name in request.runs:
            begin(name)
            run = scan_run(name, format=request.run_format, strict=request.strict)
            lenient = read.lenient if measures is None else measures
            chosen = read.measures if measures is None else measures
            staged.append(score_stages(run, read.prepared, chosen, lenient=lenient, keep=keep))
    names = distinct_names([utf8(one.final.system) for one in staged])
    return Subject(read, dict(zip(names, staged, strict=True)))


def publish_paper(paper: Paper, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, then print the page unless something else goes to standard output."""
    write_outputs(outputs, paper)
    if as_json:
        write_stdout(to_json(paper))
    elif not quiet and all(output.path is not None for output in outputs):
        from karat.reports.terminal import standard_console

        show_page(paper.page(), standard_console())
