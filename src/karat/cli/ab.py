"""``karat ab``: two configs of a retrieval engine, the same queries, and what changed."""

from __future__ import annotations

from typing import Annotated

import typer

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
    """Search a corpus under two configs, and tell recall, MRR and nDCG of both.

    Says whether B is better than A by nDCG@k; the exit code is 0 whatever the verdict.
    Settings of a config that change nothing are told on standard error.

    """
    from karat.cli.ab_running import Request, compare_configs, publish

    request = Request(
        queries=queries,
        truth=truth,
        config_a=config_a,
        config_b=config_b,
        out=out,
        csv=csv,
        k=k,
        corpus=corpus,
        run_a=run_a,
        run_b=run_b,
        emit_traces=emit_traces,
        trace_dir=trace_dir,
        as_json=as_json,
        quiet=quiet,
    )
    publish(compare_configs(request), request)
