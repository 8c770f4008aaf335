"""``karat run``: search, evaluate, compare, gate and report, as a karat.yaml says."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options, saving
from karat.cli.search import ConfigFile, Systems

Fresh = Annotated[
    bool, typer.Option("--fresh", help="Ask every system again, even where nothing changed.")
]
RequireVerdict = Annotated[
    bool, typer.Option("--require-verdict", help="Exit with 3 when the verdict is unclear.")
]

EXAMPLES = """\b
Examples:
  karat run
  karat run path/to/karat.yaml -o report.md
  karat run --system bm25 --system hybrid --fresh
  karat run --set rel=2 --set seed=7
  karat run --json
"""


def run(
    config: ConfigFile = None,
    system: Systems = None,
    field: options.Fields = None,
    fresh: Fresh = False,
    settings: options.Settings = None,
    output: options.Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    no_regression: options.NoRegression = None,
    require_verdict: RequireVerdict = False,
    save: saving.Save = False,
    tag: saving.Tags = None,
    store: saving.StoreUrl = None,
    timestamp: options.Timestamp = None,
) -> None:
    """Do what a karat.yaml says: search, evaluate, compare, hold against gates, report.

    A log whose system, files, corpus and queries are unchanged is used again, an interrupted
    one gone on with; a live system (http, python, a store) is asked again unless its
    index_version says what it is. The first of several systems is the baseline of the
    comparison, and the others are held against the gates; with compare: false all of them are,
    side by side.

    """
    from dataclasses import replace

    from karat.cli.publish import publish
    from karat.cli.running import Request, outputs_of, run_all
    from karat.cli.stamps import stamp
    from karat.formats.field_mapping import Fields
    from karat.reports.outputs import asks_for_all, asks_for_items, forms_in

    request = Request(
        config=config,
        systems=system,
        fields=Fields.parse(field or []),
        quiet=quiet or as_json,
        settings=settings or [],
    )
    saving.check_saving(save=save, store=store, tags=tag)
    kept = saving.store_files(store, used=save)
    outputs = outputs_of(request, output or [], stdout_taken=as_json, kept=kept)
    time = stamp(timestamp, outputs)
    report = run_all(
        request,
        fresh=fresh,
        in_full=save or asks_for_all(outputs, as_json),
        indexed=save or asks_for_items(outputs),
        forms=forms_in(outputs),
        no_regression=no_regression,
    )
    report = replace(report, timestamp=time)
    if save:
        saving.save_report(report, store=store, tags=tag)
    publish(
        report,
        outputs,
        as_json=as_json,
        quiet=quiet,
        require_verdict=require_verdict,
        name_files=True,
    )
