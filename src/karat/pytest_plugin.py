"""The pytest plugin: the fixture ``karat``, for gates and comparisons as tests.

Every run of pytest loads it wherever karat is installed, so it imports nothing until it is used.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.gate_files import Gates
    from karat.evaluation.gates import Gating
    from karat.measure.scores import Scores

    File = str | os.PathLike[str]

_WORDS = {
    "pass": "PASS",
    "fail": "FAIL",
    "unmeasurable": "CANNOT BE JUDGED",
    "skipped": "SKIPPED",
}
_COLOURS = {"FAIL": "red", "WORSE": "red", "CANNOT BE JUDGED": "yellow", "UNCLEAR": "yellow"}


class Karat:
    """What ``import karat`` offers, and assertions that say what they found.

    Wherever a run, gold, queries or a corpus is asked for, the name of a file will do.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __getattr__(self, name: str) -> Any:
        import karat

        return getattr(karat, name)

    def gate(
        self,
        measured: Run | Blocks | Scores | File,
        gates: Gates,
        *,
        gold: Gold | File | None = None,
        queries: Queries | File | None = None,
        corpus: Corpus | File | None = None,
        profile: str = "karat",
        settings: Mapping[str, Any] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Gating:
        """Fail the test unless all gates pass; one that cannot be judged does not pass.

        ``measured`` is a run, which needs its ``gold``, or scores made before. ``gates`` is a
        line such as ``R@5 >= 0.9``, a mapping, several of them, or the name of a gate file.
        ``fields`` says which columns of the files have other names: ``{"gold": "gold_ids"}``.
        """
        __tracebackhide__ = True
        from karat.evaluation.api import gate

        _refuse_no_run(measured)
        found = gate(
            measured,
            gates,
            gold=gold,
            queries=queries,
            corpus=corpus,
            profile=profile,
            settings=settings,
            fields=fields,
        )
        told = [
            (f"{_WORDS[one.verdict]}  {one.system}: {one.because}", one.verdict != "pass")
            for one in found.results
        ]
        self._lines.tell(told, "gate")
        return found

    def no_regression(
        self,
        runs: Sequence[Run | Blocks | Scores | File],
        gold: Gold | File | None = None,
        measures: str | Sequence[str] | None = None,
        *,
        queries: Queries | File | None = None,
        corpus: Corpus | File | None = None,
        require_verdict: bool = False,
        **options: Any,
    ) -> Comparisons:
        """Fail the test if a run is confirmed to be worse than the first of them.

        ``options`` are those of ``karat.compare``, such as ``primary`` and ``margin``; with
        ``no_regression="all"`` no measure may get worse by more than the margin. What is
        unclear passes, unless ``require_verdict`` says otherwise; a primary measure without any
        value does not pass.
        """
        __tracebackhide__ = True
        from karat.evaluation.api import compare

        for run in runs:
            _refuse_no_run(run)
        found = compare(runs, gold, measures, queries=queries, corpus=corpus, **options)
        unmeasured = {(row.baseline, row.system) for row in found.unmeasured}
        told = [
            (
                f"{one.verdict.upper()}  {one.system} against {one.baseline}: "
                + "; but ".join([one.because, *(caution.because for caution in one.cautions)]),
                one.regression
                or (one.baseline, one.system) in unmeasured
                or (require_verdict and one.verdict == "unclear"),
            )
            for one in found.decisions
        ]
        self._lines.tell(told, "comparison")
        return found


class Lines:
    """What the tests of a session were told; it travels with their reports, so also from xdist."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.told: dict[str, None] = {}

    def tell(self, lines: Sequence[tuple[str, bool]], what: str) -> None:
        """Keep the lines for the summary, and fail the test by those that stop it."""
        __tracebackhide__ = True
        from karat.pages.formatting import label

        if self.item is not None:
            self.item.user_properties += [("karat", label(line)) for line, _ in lines]
        stops = [_printed(label(line)) for line, stop in lines if stop]
        if stops:
            many = "" if len(lines) == 1 else "s"
            head = f"{len(stops)} of {len(lines)} {what}{many} did not pass"
            pytest.fail("\n  ".join([f"{head}:", *stops]), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """The fixture lives as long as the session; this is how it knows the test at hand."""
        self.item = item
        try:
            return (yield)
        finally:
            self.item = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """An error of karat shows values from data: in a workflow they form no command."""
        report = yield
        if report.longrepr is not None and "karat" in getattr(item, "fixturenames", ()):
            shown = str(report.longrepr)
            if _printed(shown) != shown:
                report.longrepr = _printed(shown)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The report on the end of a test holds what it was told before."""
        if report.when == "teardown":
            own = [value for name, value in report.user_properties if name == "karat"]
            self.told |= dict.fromkeys(str(value) for value in own)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line a gate and comparison."""
        if self.told:
            terminalreporter.section("karat")
        for line in self.told:
            colour = _COLOURS.get(line.partition("  ")[0], "green")
            terminalreporter.write_line(_printed(line), **{colour: True})


def _printed(line: str) -> str:
    """Return a line that GitHub takes for no workflow command."""
    from karat.reports.github import escaped, in_workflow

    return escaped(line) if in_workflow(os.environ) else line


def pytest_configure(config: pytest.Config) -> None:
    """Collect the results of this session's tests."""
    config.pluginmanager.register(Lines(), "karat-lines")


@pytest.fixture(scope="session")
def karat(pytestconfig: pytest.Config) -> Karat:
    """Retrieval quality: everything of karat, ``karat.gate`` and ``karat.no_regression``."""
    lines = pytestconfig.pluginmanager.get_plugin("karat-lines")
    return Karat(lines if isinstance(lines, Lines) else Lines())


def _refuse_no_run(measured: object) -> None:
    from karat.errors import UsageError
    from karat.measure.scores import Scores

    known = isinstance(measured, str | os.PathLike | Scores)
    if not known and not hasattr(measured, "blocks"):
        given = "None" if measured is None else type(measured).__name__
        raise UsageError(f"a run, the name of its file, or scores are expected, not {given}")
