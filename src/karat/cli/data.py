"""``karat search``, ``convert``, ``measures`` and ``schema``: runs, files and definitions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import karat
from karat.cli.command import argument, command, flag, option
from karat.cli.evaluate import CONFIG, SYSTEMS
from karat.cli.options import EXIT_CANNOT_TELL, QUIET, echo, notify
from karat.cli.streams import heed_interrupts
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.formats.runlog_schema import LogChecks


@command("search")
def search(
    *,
    config: str | None = CONFIG,
    system: list[str] | None = SYSTEMS,
    output: str | None = option(
        "-o, --output",
        "LOG",
        "The run log; {system} stands for each system's name. Default: runs/{system}.jsonl.",
    ),
    resume: bool = flag("--resume", "Resume an interrupted log, and retry failed calls."),
    restart: bool = flag("--restart", "Delete an interrupted log and start over."),
    limit: int | None = option("--limit", "N", "Run only the first N queries.", most=10**9),
    only: list[str] | None = option(
        "--filter", "COLUMN=VALUE", "Run only queries with this value; repeatable."
    ),
    concurrency: int | None = option("--concurrency", "N", "How many calls run at once.", most=256),
    rate: float | None = option(
        "--rate", "N", "At most this many calls per second.", least=0.001, most=1e9
    ),
    timeout: float | None = option(
        "--timeout", "SECONDS", "The time limit of one call.", least=0.001, most=1e9
    ),
    retries: int | None = option(
        "--retries", "N", "How often to retry a failure that may pass.", least=0, most=100
    ),
    max_failures: float | None = option(
        "--max-failures",
        "SHARE",
        "A run with a larger share of failed calls is partial. Default: 0.05.",
        least=0,
        most=1,
    ),
    cache: str | None = option(
        "--cache",
        "DIR",
        "Where indexes and vectors are kept. Default: .karat beside the karat.yaml.",
    ),
    no_cache: bool = flag("--no-cache", "Keep no index and no vectors, and use none."),
    no_latency: bool = flag(
        "--no-latency", "Leave out times and embedding counts: equal runs are then equal bytes."
    ),
    as_json: bool = flag("--json", "Print the outcomes of the calls as JSON."),
    quiet: bool = QUIET,
) -> int:
    """Run every query on the systems of a karat.yaml, and write one run log per system.

    A failed call is logged with its reason. Exits with 3 if more than --max-failures of a
    system's calls failed (a partial run), and with 2 if all of them did; an earlier log with
    answers then stays as it is.

    Examples:
      karat search karat.yaml --system bm25 -o runs/bm25.jsonl
      karat search
      karat search --system live --concurrency 16 --rate 50 --resume
      karat search --limit 20 --filter language=pt-BR
    """
    from karat.cli.progress import counting

    heed_interrupts()
    if cache == "":
        raise UsageError("--cache is empty; name a folder, such as .karat")
    if cache is not None and no_cache:
        raise UsageError("--cache names a folder and --no-cache uses none; give one of them")
    options = karat.SearchOptions(
        concurrency=concurrency,
        rate=rate,
        retries=retries,
        max_failures=max_failures,
        resume=resume,
        restart=restart,
        latency=not no_latency,
    )
    if no_cache or cache is not None:
        options = replace(options, cache=None if cache is None else Path(cache).absolute())
    project = karat.Project(
        config, systems=system, open_bar=partial(counting, quiet=quiet or as_json)
    )
    results: list[karat.SearchResult] = []
    try:
        project.search(
            output=output,
            limit=limit,
            only=only or [],
            timeout=timeout,
            options=options,
            report_search=results.append,
        )
    finally:
        if as_json and results:
            documents = [result.to_dict() for result in results]
            echo(json.dumps(documents, indent=2, ensure_ascii=False))
        elif not quiet:
            for result in results:
                echo("\n".join(result.summary()))
    partial_runs = [result.system for result in results if result.partial]
    if not partial_runs:
        return 0
    notify(f"karat: partial: too many calls of {', '.join(partial_runs)} failed")
    return EXIT_CANNOT_TELL


@command("convert")
def convert(
    *,
    source: str = argument("IN", "The input file; - is standard input."),
    target: str = argument("OUT", "The output file; - prints."),
    kind: str | None = option(
        "--kind",
        "KIND",
        "The kind of IN: run, gold, queries or corpus. Default: detected from IN and OUT.",
    ),
    from_format: str | None = option("--from", "FORMAT", "IN's format. Default: detected."),
    to_format: str | None = option("--to", "FORMAT", "OUT's format. Default: by its suffix."),
) -> int:
    """Write a file in another format.

    Prints to standard error which columns the new format cannot store.

    Examples:
      karat convert run.trec run.parquet
      karat convert qrels.txt gold.csv --kind gold
      karat convert log.jsonl.gz - --to trec
    """
    heed_interrupts()
    result = karat.convert(source, target, kind=kind, from_format=from_format, to_format=to_format)
    notify(f"{source}: {result.rows:,} {result.unit} written as {result.format}")
    if result.lost:
        notify(f"not carried by {result.format}: {', '.join(result.lost)}")
    return 0


@command("measures")
def measures(
    *,
    name: str | None = argument("NAME", "One measure, by any of its names.", None),
    as_json: bool = flag("--json", "Print as JSON."),
) -> int:
    """List the measures, or describe one of them.

    Examples:
      karat measures
      karat measures nDCG
    """
    entries = karat.measures(name)
    if as_json:
        echo(json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False))
    elif name:
        measure = entries[0]
        better = "neither way" if measure["better"] == "none" else measure["better"]
        echo(f"{measure['written']}  ({better} is better)\n\n{_plain(measure['about'])}\n")
        if measure["parameters"]:
            pairs = ", ".join(f"{key}={value!r}" for key, value in measure["parameters"].items())
            echo(f"parameters: {pairs}")
        if measure["aliases"]:
            echo(f"also read as: {', '.join(measure['aliases'])}")
    else:
        width = max(len(str(measure["name"])) for measure in entries)
        for measure in entries:
            first_line = _plain(measure["about"]).partition("\n")[0]
            echo(f"{measure['name']:<{width}}  {first_line}")
        echo("\nkarat measures NAME describes one; write measures as nDCG@10 or P(rel=2)@5.")
    return 0


def _plain(text: str) -> str:
    return text.replace("``", "")


@command("schema")
def schema(  # noqa: C901 -- each branch refuses options that contradict each other
    *,
    name: str | None = argument("NAME", "The schema. Default: list all schemas.", None),
    files: list[str] | None = argument(
        "FILE...", "With --check: the logs; - is standard input.", None
    ),
    check: bool = flag("--check", "Check files line by line instead of printing the schema."),
    output: str | None = option("-o, --output", "FILE", "The file to write; - prints the schema."),
    as_json: bool = flag("--json", "Print the list, or the result of a check, as JSON."),
    quiet: bool = flag("--quiet", "With --check: print nothing; only set the exit code."),
) -> int:
    """Print the JSON Schema of run logs, or check logs against it.

    A check lists every line that no command can read. For a valid log it lists the facts it has,
    and the facts missing to reproduce it. Exits with 2 when a line is bad.

    Examples:
      karat schema
      karat schema run-log -o run-log.schema.json
      karat schema run-log --check runs/*.jsonl
    """
    if check and not files:
        raise UsageError("--check needs the logs: karat schema run-log --check runs/*.jsonl")
    if files and not check:
        raise UsageError(f"add --check to check {files[0]!r}; without it, name one schema")
    if check and output is not None:
        raise UsageError("-o writes a schema; --check prints its result, with --json as JSON")
    if output is not None and name is None:
        raise UsageError("-o writes one schema; name it: karat schema run-log -o FILE")
    if quiet and not check:
        raise UsageError("--quiet is for --check; leave it out")
    if name is None:
        schemas = [karat.schema()]
        if as_json:
            echo(json.dumps([asdict(entry) for entry in schemas], indent=2))
            return 0
        for entry in schemas:
            echo(f"{entry.name}  version {entry.version}: {entry.about}")
        echo("\nkarat schema NAME prints one; karat schema NAME --check FILE... checks files.")
        return 0
    chosen = karat.schema(name)
    if check:
        checks = chosen.check(files or [])
        if as_json:
            echo(json.dumps(checks.to_dict(), indent=2, ensure_ascii=False))
        elif not quiet:
            _show_checks(checks)
        return 0 if checks.sound else 2
    if output is None or output == "-":
        echo(chosen.text(), end="")
        return 0
    chosen.save(output)
    return 0


def _show_checks(checks: LogChecks) -> None:
    from karat.pages.formatting import label, plural
    from karat.pages.terminal import show_table, standard_console

    for log in checks.sound_logs:
        failed = f", {log.failed:,} failed" if log.failed else ""
        echo(f"{label(log.name)}: sound, {plural(log.lines, 'call')}{failed}")
    if checks.sound_logs:
        echo()
        show_table(checks.table(), standard_console())
    for log in checks.sound_logs:
        if log.differing:
            echo(f"{label(log.name)}: not the same in all lines: {', '.join(log.differing)}")
    for log in checks.logs:
        for line in log.problems():
            notify(line)
