"""``karat ab`` and ``karat story``: the commands of tools that karat replaces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import karat
from karat.cli.command import REQUIRED, argument, command, flag, option
from karat.cli.options import EXIT_FAILED, QUIET, echo, notify, show
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.reports.outputs import Output


@command("ab")
def ab(
    *,
    corpus: str | None = option("--corpus", "FILE", "The items that both configs search."),
    queries: str = option(
        "--queries", "FILE", "Queries, tab-separated without a header: id, text.", REQUIRED
    ),
    truth: str = option(
        "--truth",
        "FILE",
        "Judgments, tab-separated without a header: query id, item id, grade.",
        REQUIRED,
    ),
    config_a: str = option("--configA", "FILE", "The baseline's config, as YAML.", REQUIRED),
    config_b: str = option("--configB", "FILE", "The candidate's config, as YAML.", REQUIRED),
    k: int = option("--k", "N", "The cut-off of each list, from 1.", 10, most=10**9),
    out: str = option("--out", "FILE", "The JSON file to write.", REQUIRED),
    csv: str | None = option("--csv", "FILE", "Also write a table by query to this file."),
    emit_traces: bool = flag(
        "--emit-traces", "Append a trace of each query, where a config allows it."
    ),
    trace_dir: str | None = option(
        "--trace-dir", "DIR", "The folder for traces, instead of the config's."
    ),
    run_a: str | None = option("--runA", "FILE", "A run of A made elsewhere, instead of --corpus."),
    run_b: str | None = option("--runB", "FILE", "A run of B made elsewhere, instead of --corpus."),
    as_json: bool = flag("--json", "Print the same document, and nothing else, to stdout."),
    quiet: bool = flag("--quiet", "Print neither the table nor progress."),
) -> int:
    """Search a corpus under two configs, and report recall, MRR and nDCG of both.

    Reports whether B is better than A by nDCG@k; the exit code is always 0.
    Settings of a config that have no effect are listed on standard error.

    Examples:
      karat ab --corpus corpus.jsonl --queries queries.tsv --truth qrels.tsv \\
        --configA base.yaml --configB fused.yaml --k 10 --out out/ab.json --csv out/ab.csv
      karat ab --queries queries.tsv --truth qrels.tsv --configA a.yaml --configB b.yaml \\
        --runA a.trec --runB b.jsonl --out ab.json
    """
    from karat.cli.progress import counting
    from karat.cli.streams import heed_interrupts
    from karat.pages.result import to_json
    from karat.reports.outputs import parse_outputs, write_stdout

    heed_interrupts()
    files = (queries, truth, config_a, config_b, corpus, run_a, run_b)
    outputs = parse_outputs(
        [f"json:{out}", *([] if csv is None else [f"csv:{csv}"])],
        inputs=[name for name in files if name is not None],
        stdout_taken=as_json,
    )
    result = karat.ab(
        queries,
        truth,
        config_a,
        config_b,
        k=k,
        corpus=corpus,
        run_a=run_a,
        run_b=run_b,
        emit_traces=emit_traces,
        trace_dir=trace_dir,
        open_bar=partial(counting, quiet=quiet or as_json),
    )
    for note in (*result.notes, *result.write(outputs)):
        notify(f"karat: {note}")
    if as_json:
        write_stdout(to_json(result))
    if as_json or any(output.path is None for output in outputs):
        return 0
    echo(f"Wrote JSON to {out}{'' if csv is None else f' and CSV to {csv}'}")
    if not quiet:
        echo()
        show(result)
    return 0


@command("story")
def story(
    *,
    story: str = argument("STORY", "The story in CNL; - reads standard input."),
    queries: str | None = option(
        "--queries", "FILE", "The retrieval_queries: a JSON array of them."
    ),
    profile: str = option(
        "--profile",
        "NAME",
        "What ranks the scenes: vsa (hypervectors), or bow or basic (word counts).",
        "vsa",
    ),
    dim: int | None = option(
        "--dim", "N", "The number of dimensions of vsa's vectors. Default: 1000.", most=100_000
    ),
    seed: int | None = option(
        "--seed",
        "N",
        "The seed of the vectors of vsa. Default: 42.",
        least=-(2**53 - 1),
        most=2**53 - 1,
    ),
    top_k: int = option("-k, --top-k", "N", "The k of queries that have no topK. Default: 5.", 5),
    output: list[str] | None = option(
        "-o, --output", "OUT", "Write the result object to out.json or story:FILE; repeatable."
    ),
    as_json: bool = flag("--json", "Print the result object, not a table."),
    quiet: bool = QUIET,
    lenient: bool = flag("--lenient", "Continue after a broken line of the story."),
) -> int:
    """Measure how well the scenes of a CNL story are found: MRR above 0.6 passes.

    Exits with 1 when the MRR is not above 0.6, with 2 when a file cannot be read. Without
    queries that name relevant scenes, the metric is skipped, which is not a failure.

    Examples:
      karat story novel.cnl --queries queries.json
      karat story novel.cnl --queries queries.json --profile bow
      karat story novel.cnl --queries queries.json --dim 10000 -k 3 -o result.json
    """
    from karat.pages.result import to_json
    from karat.reports.outputs import write_files, write_stdout

    inputs = [story, *([] if queries is None else [queries])]
    outputs = _story_outputs(output or [], inputs, as_json=as_json)
    result = karat.story(
        story, queries, profile=profile, dim=dim, seed=seed, k=top_k, lenient=lenient
    )
    data = to_json(result)
    files = [place.path for place in outputs if place.path is not None]
    write_files([(path, data) for path in files])
    if as_json or any(place.path is None for place in outputs):
        write_stdout(data)
        for note in result.notes:
            notify(f"karat: {note}")
    elif not quiet:
        show(result)
    elif result.quality.passed is None:
        notify(f"karat: skipped: {result.quality.why_skipped}")
    # A skipped metric is not a failure.
    return EXIT_FAILED if result.quality.passed is False else 0


def _story_outputs(texts: Sequence[str], inputs: Sequence[str], *, as_json: bool) -> list[Output]:
    """Return every ``-o``; names that cannot be written are refused before any work."""
    from karat.reports.outputs import parse_outputs

    files = []
    for text in texts:
        file = text.removeprefix("story:")
        is_json = file == "-" or file.lower().removesuffix(".gz").endswith(".json")
        if not file or (text == file and not is_json):
            raise UsageError(f"output {text!r}: use out.json, story:FILE or -")
        files.append(f"json:{file}")
    return parse_outputs(files, inputs=inputs, stdout_taken=as_json)
