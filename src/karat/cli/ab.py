"""``karat ab``: two configs of a retrieval engine, the same queries, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from karat.compat.ab import AbResult

BASE_RANKING = (
    "The base ranking is by a hash of each text: the same everywhere, and without meaning."
)

QueriesFile = Annotated[
    str,
    typer.Option(
        "--queries", metavar="FILE", help="Queries, tab-separated without a header: id, text."
    ),
]
TruthFile = Annotated[
    str,
    typer.Option(
        "--truth",
        metavar="FILE",
        help="Judgments, tab-separated without a header: query id, item id, grade.",
    ),
]
ConfigA = Annotated[
    str, typer.Option("--configA", metavar="FILE", help="The baseline's config, as YAML.")
]
ConfigB = Annotated[
    str, typer.Option("--configB", metavar="FILE", help="The candidate's config, as YAML.")
]
Cut = Annotated[str, typer.Option("--k", metavar="N", help="How much of each list counts, from 1.")]
JsonFile = Annotated[str, typer.Option("--out", metavar="FILE", help="Where the JSON goes.")]
CsvFile = Annotated[
    str | None, typer.Option("--csv", metavar="FILE", help="Where a table by query goes as well.")
]
CorpusFile = Annotated[
    str | None,
    typer.Option("--corpus", metavar="FILE", help="The items that both configs search."),
]
RunA = Annotated[
    str | None,
    typer.Option("--runA", metavar="FILE", help="What A returned elsewhere, instead of --corpus."),
]
RunB = Annotated[
    str | None,
    typer.Option("--runB", metavar="FILE", help="What B returned elsewhere, instead of --corpus."),
]
EmitTraces = Annotated[
    bool,
    typer.Option("--emit-traces", help="Append a trace of each query, where a config allows it."),
]
TraceFolder = Annotated[
    str | None,
    typer.Option("--trace-dir", metavar="DIR", help="Where traces go, instead of the config's."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the same document, and nothing else, to stdout.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print neither the table nor progress.")]

EXAMPLES = """\b
Examples:
  karat ab --corpus corpus.jsonl --queries queries.tsv --truth qrels.tsv \\
    --configA base.yaml --configB fused.yaml --k 10 --out out/ab.json --csv out/ab.csv
  karat ab --queries queries.tsv --truth qrels.tsv --configA a.yaml --configB b.yaml \\
    --runA a.trec --runB b.jsonl --out ab.json
"""


def ab(
    *,
    corpus: CorpusFile = None,
    queries: QueriesFile,
    truth: TruthFile,
    config_a: ConfigA,
    config_b: ConfigB,
    k: Cut = "10",
    out: JsonFile,
    csv: CsvFile = None,
    emit_traces: EmitTraces = False,
    trace_dir: TraceFolder = None,
    run_a: RunA = None,
    run_b: RunB = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search a corpus under two configs, and report recall, MRR and nDCG of both.

    Says whether B is better than A by nDCG@k; the exit code is 0 whatever the verdict.
    Settings of a config that have no effect are listed on standard error.

    """
    from functools import partial

    from karat.cli.numbers import whole
    from karat.cli.progress import counting
    from karat.cli.streams import heed_interrupts
    from karat.compat.ab import AbRequest, ab_outputs, write_ab
    from karat.compat.ab import ab as compare
    from karat.compat.ab_output import to_json
    from karat.report.outputs import write_stdout

    heed_interrupts()
    request = AbRequest(
        queries=queries,
        truth=truth,
        config_a=config_a,
        config_b=config_b,
        k=whole("--k", k, most=10**9),
        corpus=corpus,
        run_a=run_a,
        run_b=run_b,
        emit_traces=emit_traces,
        trace_dir=trace_dir,
    )
    outputs = ab_outputs(request, out, csv, stdout_taken=as_json)
    result = compare(request, open_bar=partial(counting, quiet=quiet or as_json))
    for note in (*result.notes, *write_ab(result, outputs)):
        typer.echo(f"karat: {note}", err=True)
    if as_json:
        write_stdout(to_json(result.report) + b"\n")
    elif all(output.path is not None for output in outputs):
        typer.echo(f"Wrote JSON to {out}{'' if csv is None else f' and CSV to {csv}'}")
        if not quiet:
            show(result, searched=corpus is not None)


def show(result: AbResult, *, searched: bool) -> None:
    """Print the means and the verdict."""
    from karat.compat.ab_output import macro_grid
    from karat.pages.terminal import print_line, show_table, standard_console

    console = standard_console()
    console.print()
    show_table(macro_grid(result.report), console)
    for line in result.verdict:
        print_line(line, console)
    if searched:
        console.print(BASE_RANKING, style="dim", soft_wrap=True)
