"""Where a report goes: ``-o`` read, checked before any work, and written whole or not at all."""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from karat.data.columns import Source
from karat.errors import UsageError, unknown
from karat.formats.files import Input, atomic_write, refuse_database, safe_file_name

# Stands for the name of a system in a file name.
SYSTEM = "{system}"


@dataclass(frozen=True, slots=True)
class Form:
    """A form that a report can take; without a suffix it is chosen by its prefix only.

    ``writer`` is the path of a function that is imported when a report is written, and
    ``table`` that of the one for .csv files. A form of another tool is written under that
    tool's ``profile``. ``systems`` is how many systems it holds (None: any), ``lists`` how much
    of every list it needs, ``in_full`` whether it needs diagnostics, ``indexed`` whether it
    needs the corpus as an index, ``stamped`` whether it holds a time.
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
    indexed: bool = False
    stamped: bool = False

    def render(self, report: Any, *, table: bool = False) -> bytes:
        """Return the report in this form."""
        module, _, function = (self.table if table and self.table else self.writer).rpartition(".")
        render: Callable[[Any], bytes] = getattr(import_module(module), function)
        return render(report)


JSON = Form(
    "json",
    ".json",
    "the whole report, stable to the byte",
    "karat.pages.result.to_json",
    in_full=True,
)
_FORMS = (
    JSON,
    Form("csv", ".csv", "one row per query", "karat.pages.result.to_csv"),
    Form("parquet", ".parquet", "one row per query", "karat.pages.result.to_parquet"),
    Form(
        "md",
        ".md",
        "Markdown: a comment on a pull request, or a page",
        "karat.reports.markdown.to_markdown",
        in_full=True,
    ),
    Form(
        "html",
        ".html",
        "one page with every query, for any browser, offline",
        "karat.reports.html.render.to_html",
        in_full=True,
        indexed=True,
    ),
    Form(
        "junit", None, "JUnit XML: gates and comparisons as tests", "karat.reports.junit.to_junit"
    ),
    Form("trec", None, "the layout of trec_eval -q", "karat.reports.trec.to_trec"),
    Form(
        "story",
        None,
        "a story tool's result object, under --profile story",
        "karat.compat.story.report_to_json",
        profile="story",
        systems=1,
        lists="all",
    ),
    Form(
        "memory",
        None,
        "a memory system's reporting format, under --profile memory",
        "karat.compat.report_outputs.to_memory",
        profile="memory",
        systems=1,
        in_full=True,
        stamped=True,
    ),
    Form(
        "ab",
        None,
        "an A/B harness's JSON, or its CSV in a file that ends in .csv, under --profile ab",
        "karat.compat.ab.report_to_json",
        table="karat.compat.ab.report_to_csv",
        profile="ab",
        systems=2,
        lists="k",
    ),
    Form(
        "minimal",
        None,
        "a minimal eval loop's metrics.json, under --profile minimal",
        "karat.compat.report_outputs.to_metrics",
        profile="minimal",
        systems=1,
    ),
    Form(
        "misses",
        None,
        "every miss at k: query, retrieved, relevant",
        "karat.compat.report_outputs.to_misses",
        systems=1,
        lists="k",
    ),
)
FORMS = {form.name: form for form in _FORMS}
# What is kept in a store holds everything.
STORED = Form("store", None, "an evaluation in the store", "", in_full=True, indexed=True)
# karat's own forms, without those of other tools.
OWN_FORMS = {name: form for name, form in FORMS.items() if form.systems is None}
# Forms of an analysis; some have more.
PICTURES = ("png", "svg")
PAGE_FORMS = {"json": JSON, "md": Form("md", ".md", "Markdown", "karat.pages.result.to_markdown")}
_PREFIX = re.compile(r"(?P<form>[a-z0-9]{2,}):(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Output:
    """One ``-o``: a form, and a file or (None) standard output.

    ``read`` are the places that no file of it may take.
    """

    form: Form
    path: Path | None
    read: frozenset[str] = field(default=frozenset(), repr=False)

    def files(self, systems: Iterable[str]) -> list[Path]:
        """Return the files of this output for systems of these names."""
        if self.path is None:
            return []
        per_system = self.form.systems == 1 and self._named
        return list(map(self._file, systems)) if per_system else [self.path]

    def payloads(self, report: Any) -> list[tuple[Path | None, bytes]]:
        """Return the files to write with their bytes; some forms have one file per system."""
        if self.form.systems != 1 or not self._named:
            return [(self.path, self._bytes(report, self.path))]
        files = {self._file(system.name): system for system in report.systems}
        return [
            (file, self._bytes(replace(report, systems=(system,)), file))
            for file, system in files.items()
        ]

    @property
    def _named(self) -> bool:
        return self.path is not None and SYSTEM in str(self.path)

    def _file(self, system: str) -> Path:
        return Path(str(self.path).replace(SYSTEM, safe_file_name(system)))

    def _bytes(self, report: Any, path: Path | None) -> bytes:
        name = "" if path is None else path.name.lower().removesuffix(".gz")
        return self.form.render(report, table=name.endswith(".csv"))


def parse_output(text: str, forms: Mapping[str, Form] = FORMS) -> Output:
    """Read an ``-o``: the prefix or the suffix picks the form.

    >>> parse_output("out/report.json").form.name, parse_output("trec:out.txt").form.name
    ('json', 'trec')
    >>> parse_output("report.docx")
    Traceback (most recent call last):
    karat.errors.UsageError: output 'report.docx': use .json, .csv, .parquet, .md, .html, junit:, \
trec:, story:, memory:, ab:, minimal:, misses:
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
    choices = ", ".join(form.suffix or f"{form.name}:" for form in forms.values())
    raise UsageError(f"output {text!r}: use {choices}")


def form_named(name: str) -> Form:
    """Return a form of reports by its name.

    >>> form_named("misses").lists
    'k'
    """
    if name not in FORMS:
        raise unknown("output form", name, FORMS)
    return FORMS[name]


def parse_outputs(
    texts: Sequence[str],
    *,
    inputs: Iterable[str] = (),
    stdout_taken: bool = False,
    forms: Mapping[str, Form] = FORMS,
    systems: int = 1,
    names: Sequence[str] = (),
    profile: str | None = None,
) -> list[Output]:
    """Read every ``-o`` and refuse, before any work, what could not be written later.

    ``names`` are the systems' as far as they are known by now; ``write_outputs`` looks again
    when all are. ``profile`` is the reading in force, where forms may ask for another.
    """
    if not texts:
        return []
    read = frozenset(os.path.realpath(name) for name in inputs if name != "-")
    outputs = [replace(parse_output(text, forms), read=read) for text in texts]
    for output in outputs:
        _check_form(output.form, str(output.path or "-"), systems, profile)
    if sum(output.path is None for output in outputs) + stdout_taken > 1:
        raise UsageError("only one report can go to standard output; give the others file names")
    for path in check_files(outputs, list(dict.fromkeys(names))):
        _check_writable(path)
    return outputs


def check_files(outputs: Sequence[Output], systems: Sequence[str]) -> list[Path]:
    """Return the files of all outputs; none may overwrite another output or an input.

    Nor may one be the folder of another: a place holds a file or a folder.
    """
    seen: dict[str, Path] = {}
    for output in outputs:
        for path in output.files(systems):
            place = os.path.realpath(path)
            if place in seen:
                raise UsageError(
                    f"output {str(path)!r} is named twice; choose another name for one"
                )
            if place in output.read:
                raise UsageError(f"output {str(path)!r} is also an input; choose another name")
            seen[place] = path
    used_paths = {*seen, *(place for output in outputs for place in output.read)}
    for place, path in seen.items():
        inside = [other for other in used_paths if place in map(str, Path(other).parents)]
        # An output may lie inside an input folder, such as a store.
        above = map(str, Path(place).parents)
        around = [other for other in above if other in used_paths and not Path(other).is_dir()]
        if inside or around:
            other = Path(min([*inside, *around], key=len)).name
            raise UsageError(
                f"output {str(path)!r}: {other!r} cannot be both a file and a folder; choose"
                " another name"
            )
    return list(seen.values())


def default_names(runs: Iterable[str]) -> list[str]:
    """Return the names of the systems of run files, unless the files give others.

    >>> default_names(["runs/bm25.trec.gz", "-"])
    ['bm25', 'stdin']
    """
    return [
        Input(Source(Path(run).name), path=None if run == "-" else Path(run)).stem for run in runs
    ]


def write_outputs(outputs: Sequence[Output], report: Any) -> list[Path]:
    """Write a report in every form that was asked for; the files that hold it now."""
    refuse_collisions(outputs, report)
    payloads = [payload for output in outputs for payload in output.payloads(report)]
    write_files(payloads)
    return [path for path, _ in payloads if path is not None]


def refuse_collisions(outputs: Sequence[Output], report: Any) -> None:
    """Check the files once more, now that every system's name is known."""
    if any(output.form.systems == 1 for output in outputs):
        check_files(outputs, [system.name for system in report.systems])


def write_files(payloads: Sequence[tuple[Path | None, bytes]]) -> None:
    """Write all files, or none: each is complete beside its place before any is moved there.

    A file whose name ends in .gz is compressed. What has no path goes to standard output last.
    """
    with ExitStack() as stack:
        for path, data in payloads:
            if path is not None:
                packed = path.suffix.lower() == ".gz"
                file = stack.enter_context(atomic_write(path))
                file.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    for path, data in payloads:
        if path is None:
            write_stdout(data)


def write_stdout(data: bytes) -> None:
    """Write bytes to standard output, whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _path(text: str) -> Path | None:
    return None if text in {"-", "/dev/stdout"} else Path(text)


def _check_form(form: Form, name: str, systems: int, profile: str | None) -> None:
    """Refuse a form of another profile, since its numbers would differ, or number of systems."""
    if profile is not None and form.profile not in (None, profile):
        raise UsageError(
            f"output {form.name}: is written under the profile {form.profile}, not "
            f"{profile}; give --profile {form.profile} (profile: in a karat.yaml)"
        )
    if form.systems == 2 and systems != 2:
        raise UsageError(f"output {form.name}:{name} holds two systems, not {systems:,}")
    if form.systems == 1 and systems > 1 and SYSTEM not in name:
        file = Path(name)
        example = "out.{system}.json" if name == "-" else f"{file.stem}.{SYSTEM}{file.suffix}"
        raise UsageError(
            f"output {form.name}:{name} holds one system, not {systems:,}; "
            f"write {form.name}:{file.parent / example}"
        )


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"output {str(path)!r} is a folder; name a file in it")
    refuse_database(path)
    # A file is replaced by a rename, which needs a writable folder, not a writable file.
    folder = Path(os.path.realpath(path)).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"output {str(path)!r}: {folder.name!r} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"output {str(path)!r}: its folder may not be written to; choose another place"
        )
