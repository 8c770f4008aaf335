"""``karat story``: how well the scenes of a CNL story are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from karat.cli import options

if TYPE_CHECKING:
    from karat.compat.story import StoryResult
    from karat.report.outputs import Output

StoryFile = Annotated[
    str, typer.Argument(metavar="STORY", help="The story in CNL; - reads standard input.")
]
QueriesFile = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="The retrieval_queries: a JSON array of them."),
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="What ranks the scenes: vsa (hypervectors), or bow or basic (word counts).",
    ),
]
Dim = Annotated[
    str | None,
    typer.Option("--dim", metavar="N", help="How long the vectors of vsa are. Default: 1000."),
]
Seed = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="The seed of the vectors of vsa. Default: 42."),
]
TopK = Annotated[
    str,
    typer.Option(
        "-k", "--top-k", metavar="N", help="The k of queries that have no topK. Default: 5."
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write the result object to out.json or story:FILE; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result object, not a table.")]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Read on where a line of the story is broken.")
]

EXAMPLES = """\b
Examples:
  karat story novel.cnl --queries queries.json
  karat story novel.cnl --queries queries.json --profile bow
  karat story novel.cnl --queries queries.json --dim 10000 -k 3 -o result.json
"""


def story(
    story: StoryFile,
    queries: QueriesFile = None,
    profile: Profile = "vsa",
    dim: Dim = None,
    seed: Seed = None,
    top_k: TopK = "5",
    output: Outputs = None,
    as_json: Json = False,
    quiet: options.Quiet = False,
    lenient: Lenient = False,
) -> None:
    """Measure how well the scenes of a CNL story are found: MRR above 0.6 passes.

    Exits with 1 when the MRR is not above 0.6, with 2 when a file cannot be read. Without
    queries, or where none says which scenes are relevant, the metric is skipped, which is no
    failure.

    """
    from karat.cli.numbers import optional_whole, whole
    from karat.compat.story import story as measure
    from karat.compat.story import story_outputs
    from karat.retrieve.vsa import MOST_DIM, MOST_SEED

    inputs = [story, *([] if queries is None else [queries])]
    outputs = story_outputs(output or [], inputs, as_json=as_json)
    result = measure(
        story,
        queries,
        profile=profile,
        dim=optional_whole("--dim", dim, most=MOST_DIM),
        seed=optional_whole("--seed", seed, least=-MOST_SEED, most=MOST_SEED),
        k=whole("--top-k", top_k),
        lenient=lenient,
    )
    publish(result, outputs, as_json=as_json, quiet=quiet)


def publish(result: StoryResult, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, print the result, and exit with 1 if it fails."""
    from karat.cli.publish import EXIT_FAILED
    from karat.compat.story_output import show_story, story_to_json
    from karat.pages.terminal import standard_console
    from karat.report.outputs import compressed, write_files, write_stdout

    data = story_to_json(result.quality)
    files = [output.path for output in outputs if output.path is not None]
    write_files([(path, compressed(data, path)) for path in files])
    if as_json or any(output.path is None for output in outputs):
        write_stdout(data)
        for note in result.notes:
            typer.echo(f"karat: {note}", err=True)
    elif not quiet:
        show_story(result.quality, result.about, result.notes, standard_console())
    elif result.quality.passed is None:
        typer.echo(f"karat: skipped: {result.quality.why_skipped}", err=True)
    # A skipped metric is no failure.
    if result.quality.passed is False:
        raise typer.Exit(EXIT_FAILED)
