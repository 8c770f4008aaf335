"""Where a report goes: ``-o`` read, checked before any work, and written whole or not at all."""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from karat.errors import InputError, UsageError, unknown
from karat.formats.files import file_name, replacing

# What forms render: a Report for karat eval, another finished document for other commands.
Rendered = Any
# Where the name of a system goes in the name of its file.
SYSTEM = "{system}"


@dataclass(frozen=True, slots=True)
class Form:
    """A form that a report can take; without a suffix it is chosen by its prefix alone.

    ``writer`` names a function of this package, which loads when a report is written, and
    ``table`` the one for a file that ends in .csv. A form that is another tool's own is
    written under that tool's reading, its ``profile``. ``systems`` is how many it holds, None
    for any number; ``lists`` how much of every list it needs, ``in_full`` whether it needs
    what lies behind the figures, ``stamped`` whether it holds a time.
    """

    name: str
    suffix: str | None
    about: str
    writer: str
    table: str | None = None
    profile: str | None = None
    systems: Literal[1, 2] | None = None
    lists: Literal["none", "k", "all"] = "none"
    in_full: bool = False
    stamped: bool = False

    def render(self, report: Rendered, *, table: bool = False) -> bytes:
        """The report in this form."""
        module, _, function = (self.table if table and self.table else self.writer).partition(".")
        render: Callable[[Rendered], bytes]
        render = getattr(import_module(f"karat.reports.{module}"), function)
        return render(report)


_MARKDOWN = "Markdown: a comment on a pull request, or a page"


def forms_of(*forms: Form) -> Mapping[str, Form]:
    """Forms by name, as ``parse_output`` takes them."""
    return {form.name: form for form in forms}


JSON = Form(
    "json", ".json", "the whole report, stable to the byte", "to_json.to_json", in_full=True
)
FORMS = forms_of(
    JSON,
    Form("csv", ".csv", "one row a query", "per_query.to_csv"),
    Form("parquet", ".parquet", "one row a query", "per_query.to_parquet"),
    Form("md", ".md", _MARKDOWN, "to_markdown.to_markdown", in_full=True),
    Form("junit", None, "JUnit XML: gates and comparisons as tests", "to_junit.to_junit"),
    Form("trec", None, "the layout of trec_eval -q", "to_trec.to_trec"),
    Form(
        "story",
        None,
        "a story tool's result object, under --profile story",
        "to_story.report_to_json",
        profile="story",
        systems=1,
        lists="all",
    ),
    Form(
        "memory",
        None,
        "a memory system's reporting format, under --profile memory",
        "to_memory.to_memory",
        profile="memory",
        systems=1,
        in_full=True,
        stamped=True,
    ),
    Form(
        "ab",
        None,
        "an A/B harness's JSON, or its CSV in a file that ends in .csv, under --profile ab",
        "to_ab.report_to_json",
        table="to_ab.report_to_csv",
        profile="ab",
        systems=2,
        lists="k",
    ),
    Form(
        "minimal",
        None,
        "a minimal eval loop's metrics.json, under --profile minimal",
        "to_minimal.to_metrics",
        profile="minimal",
        systems=1,
    ),
    Form(
        "misses",
        None,
        "every miss at k: query, retrieved, relevant",
        "to_minimal.to_misses",
        systems=1,
        lists="k",
    ),
)
# karat's own forms, for commands that make their lists themselves.
OWN_FORMS = {name: form for name, form in FORMS.items() if form.systems is None}
# What a page of analysis can be; some have more.
PICTURES = ("png", "svg")
PAGE_FORMS = forms_of(JSON, Form("md", ".md", "Markdown", "pages.to_markdown"))
_PREFIX = re.compile(r"(?P<form>[a-z0-9]{2,}):(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Output:
    """One ``-o``: a form, and a file or (None) standard output."""

    form: Form
    path: Path | None

    def payloads(self, report: Rendered) -> list[tuple[Path | None, bytes]]:
        """The files to write; a form that holds one system has a file for each."""
        if self.form.systems != 1 or (len(report.systems) == 1 and not self._named):
            return [(self.path, self._bytes(report, self.path))]
        files = [self._file(system.name) for system in report.systems]
        if len(set(files)) < len(files):
            raise UsageError(f"output {str(self.path)!r}: two systems would have the same file")
        return [
            (file, self._bytes(replace(report, systems=(system,)), file))
            for file, system in zip(files, report.systems, strict=True)
        ]

    @property
    def _named(self) -> bool:
        return self.path is not None and SYSTEM in str(self.path)

    def _file(self, system: str) -> Path:
        return Path(str(self.path).replace(SYSTEM, file_name(system)))

    def _bytes(self, report: Rendered, path: Path | None) -> bytes:
        """The report, packed where the file name says so."""
        name = "" if path is None else path.name.lower().removesuffix(".gz")
        return packed(self.form.render(report, table=name.endswith(".csv")), path)


def parse_output(text: str, forms: Mapping[str, Form] = FORMS) -> Output:
    """Read an ``-o``: the prefix or the suffix picks the form.

    >>> parse_output("out/report.json").form.name, parse_output("trec:out.txt").form.name
    ('json', 'trec')
    >>> parse_output("report.docx")
    Traceback (most recent call last):
    karat.errors.UsageError: output 'report.docx': use .json, .csv, .parquet, .md, junit:, trec:, \
story:, memory:, ab:, minimal:, misses:
    """
    prefix = _PREFIX.fullmatch(text)
    if prefix is not None:
        if prefix["form"] not in forms:
            raise unknown("output form", prefix["form"], forms, inside=text)
        if not prefix["rest"]:
            raise UsageError(f"output {text!r} has no file name; write {text}out.txt or {text}-")
        return Output(forms[prefix["form"]], _path(prefix["rest"]))
    name = text.lower().removesuffix(".gz")
    for form in forms.values():
        if form.suffix is not None and name.endswith(form.suffix):
            return Output(form, _path(text))
    known = ", ".join(form.suffix or f"{form.name}:" for form in forms.values())
    raise UsageError(f"output {text!r}: use {known}")


def parse_outputs(
    texts: Sequence[str],
    *,
    inputs: Iterable[str] = (),
    stdout_taken: bool = False,
    forms: Mapping[str, Form] = FORMS,
    systems: int = 1,
) -> list[Output]:
    """Read every ``-o`` and refuse, before any work, what could not be written later."""
    outputs = [parse_output(text, forms) for text in texts]
    for output in outputs:
        _check_systems(output, systems)
    if sum(output.path is None for output in outputs) + stdout_taken > 1:
        raise UsageError("only one report can go to standard output; give the others file names")
    read = {os.path.realpath(name) for name in inputs if name != "-"}
    seen: set[str] = set()
    for path in (output.path for output in outputs if output.path is not None):
        place = os.path.realpath(path)
        if place in seen:
            raise UsageError(f"output {str(path)!r} is named twice; choose another name for one")
        if place in read:
            raise UsageError(f"output {str(path)!r} is also an input; choose another name")
        seen.add(place)
        _check_writable(path)
    return outputs


def forms_in(outputs: Sequence[Output]) -> list[Form]:
    """The forms that were asked for, each once."""
    return list(dict.fromkeys(output.form for output in outputs))


def asks_for_all(outputs: Sequence[Output], stdout: bool) -> bool:
    """Whether the whole document is wanted: as JSON, also on standard output, or as a page."""
    return stdout or any(output.form.in_full for output in outputs)


def write_outputs(outputs: Sequence[Output], report: Rendered) -> list[Path]:
    """Write a report in every form that was asked for; the files that hold it now."""
    payloads = [payload for output in outputs for payload in output.payloads(report)]
    write_whole(payloads)
    return [path for path, _ in payloads if path is not None]


def write_whole(payloads: Sequence[tuple[Path | None, bytes]]) -> None:
    """Write all files, or none: each is complete beside its place before any is moved there.

    What has no path goes to standard output afterwards.
    """
    with ExitStack() as stack:
        for path, data in payloads:
            if path is not None:
                _write(stack.enter_context(replacing(path)), data, path)
    for path, data in payloads:
        if path is None:
            write_stdout(data)


def packed(data: bytes, path: Path | None) -> bytes:
    """Bytes as a file of that name holds them: packed if it ends in .gz."""
    return (
        gzip.compress(data, mtime=0) if path is not None and path.suffix.lower() == ".gz" else data
    )


def _write(place: Path, data: bytes, path: Path) -> None:
    try:
        place.write_bytes(data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be written: {reason}", where=str(path)) from None


def write_stdout(data: bytes) -> None:
    """Bytes to standard output as they are, whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _path(text: str) -> Path | None:
    return None if text in {"-", "/dev/stdout"} else Path(text)


def _check_systems(output: Output, systems: int) -> None:
    """A form that holds so many systems is not asked for another number of them."""
    form, name = output.form, str(output.path or "-")
    if form.systems == 2 and systems != 2:
        raise UsageError(f"output {form.name}:{name} holds two systems, not {systems:,}")
    if form.systems == 1 and systems > 1 and SYSTEM not in name:
        file = Path(name)
        apart = "out.{system}.json" if name == "-" else f"{file.stem}.{SYSTEM}{file.suffix}"
        raise UsageError(
            f"output {form.name}:{name} holds one system, not {systems:,}; "
            f"write {form.name}:{file.parent / apart}"
        )


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"output {str(path)!r} is a folder; name a file in it")
    # A file is replaced by renaming another over it, which needs its folder, not the file.
    folder = Path(os.path.realpath(path)).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"output {str(path)!r}: {folder.name!r} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"output {str(path)!r}: its folder may not be written to")
