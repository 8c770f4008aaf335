"""The pytest plugin: the fixture ``karat``, for gates and comparisons as tests.

Every run of pytest loads it wherever karat is installed, so it imports nothing until it is used.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.gate_files import Gates
    from karat.evaluation.gates import Gating

_WORDS = {
    "pass": "PASS",
    "fail": "FAIL",
    "unmeasurable": "CANNOT BE JUDGED",
    "skipped": "SKIPPED",
}
_PARTIAL = f"{_WORDS['unmeasurable']}  {{}}: too many calls failed"
_COLOURS = {"FAIL": "red", "WORSE": "red", "CANNOT BE JUDGED": "yellow", "UNCLEAR": "yellow"}


class Karat:
    """What ``import karat`` offers, and assertions that say what they found.

    Runs, gold, queries and a corpus are given as to ``karat.evaluate``, also by file name.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __getattr__(self, name: str) -> Any:
        import karat

        return getattr(karat, name)

    def gate(self, measured: Any, gates: Gates, **inputs: Any) -> Gating:
        """Fail the test unless all gates pass; one that cannot be judged does not pass.

        Nor does a run of which more calls failed than its log allows.

        ``measured`` is a run, which needs its ``gold``, or scores made before. ``gates`` is a
        line such as ``R@5 >= 0.9``, a mapping, several of them, or the name of a gate file.
        ``inputs`` are those of ``karat.gate``, such as ``gold`` and ``queries``.
        """
        __tracebackhide__ = True
        from karat.evaluation.api import gate

        gating = gate(measured, gates, **inputs)
        lines = [
            (f"{_WORDS[result.verdict]}  {result.system}: {result.because}", result.verdict)
            for result in gating.results
        ]
        if gating.partial:
            name = next(result.system for result in gating.results)
            lines.append((_PARTIAL.format(name), "unmeasurable"))
        self._lines.report([(line, verdict != "pass") for line, verdict in lines], "gate")
        return gating

    def no_regression(
        self,
        runs: Mapping[str, Any] | Sequence[Any],
        gold: Any = None,
        measures: str | Sequence[str] | None = None,
        *,
        require_verdict: bool = False,
        **options: Any,
    ) -> Comparisons:
        """Fail the test if a run is confirmed to be worse than the first of them.

        ``options`` are those of ``karat.compare``, such as ``primary`` and ``margin``; with
        ``no_regression="all"`` no measure may get worse by more than the margin. What is
        unclear passes, unless ``require_verdict`` says otherwise; a primary measure without any
        value does not pass, nor a run of which more calls failed than its log allows.
        """
        __tracebackhide__ = True
        from karat.evaluation.api import compare

        comparisons = compare(runs, gold, measures, **options)
        unmeasured = {(row.baseline, row.system) for row in comparisons.unmeasured}
        lines = [(_PARTIAL.format(name), True) for name in comparisons.partial]
        for decision in comparisons.decisions:
            pair = f"{decision.system} against {decision.baseline}"
            reasons = [decision.because, *(caution.because for caution in decision.cautions)]
            stops = (
                decision.regression
                or (decision.baseline, decision.system) in unmeasured
                or (require_verdict and decision.verdict == "unclear")
            )
            lines.append((f"{decision.verdict.upper()}  {pair}: {'; but '.join(reasons)}", stops))
        self._lines.report(lines, "comparison")
        return comparisons


class Lines:
    """The verdicts in a session's tests; they travel with its reports, so also from xdist."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.lines: dict[str, None] = {}

    def report(self, lines: Sequence[tuple[str, bool]], noun: str) -> None:
        """Keep the lines for the summary, and fail the test by those that stop it."""
        __tracebackhide__ = True
        from karat.pages.formatting import label, plural

        if self.item is not None:
            self.item.user_properties += [("karat", label(line)) for line, _ in lines]
        stops = [_printed(label(line)) for line, stop in lines if stop]
        if stops:
            head = f"{len(stops)} of {plural(len(lines), noun)} did not pass"
            pytest.fail("\n  ".join([f"{head}:", *stops]), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the test that runs, since the fixture lives as long as the session."""
        self.item = item
        try:
            return (yield)
        finally:
            self.item = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Escape errors of karat, whose values from data could form a command in a workflow."""
        report = yield
        if report.longrepr is not None and "karat" in getattr(item, "fixturenames", ()):
            shown = str(report.longrepr)
            if _printed(shown) != shown:
                report.longrepr = _printed(shown)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the lines of a test from the report on its end."""
        if report.when == "teardown":
            lines = [str(value) for name, value in report.user_properties if name == "karat"]
            self.lines |= dict.fromkeys(lines)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print one line per gate and comparison."""
        if self.lines:
            terminalreporter.section("karat")
        for line in self.lines:
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
