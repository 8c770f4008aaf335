"""``karat story``: how well the scenes of a CNL story are found."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

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
    typer.Option("--seed", metavar="N", help="What the vectors of vsa start from. Default: 42."),
]
TopK = Annotated[
    str | None,
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
    top_k: TopK = None,
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
    from karat.cli.storytelling import Request, measure, outputs_of, publish

    request = Request(
        story=story,
        queries=queries,
        profile=profile,
        dim=dim,
        seed=seed,
        top_k=top_k,
        lenient=lenient,
    )
    outputs = outputs_of(request, output or [], as_json=as_json)
    publish(measure(request), outputs, as_json=as_json, quiet=quiet)
