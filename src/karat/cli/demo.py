"""``karat demo``: the small set that ships with karat, scored."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Annotated

import typer

Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Also write the report: out.json, out.csv, out.parquet, out.md or trec:out.txt.",
    ),
]

_STORY = """\
A help centre of 30 paragraphs, 12 questions with graded gold, two systems: bm25 matches
words, dense matches meanings and logs its latencies.
"""
_NEXT = """\
What to read off:
  - bm25 finds no word of 3 questions in any paragraph; they count 0 and are shown as missing.
  - dense timed out once: a failed call counts 0 too, but is never taken for an empty result.
  - R@1 and P@5 have ceilings: no system can do better on this gold.
  - by tie order: bm25 gave equal scores, and their order alone moves nDCG@5 by this much.
  - by language: the mean hides that bm25 finds nothing in Spanish.

Try next:
  cd {folder}
  karat eval bm25.trec dense.jsonl --gold qrels.txt -m nDCG@5
  karat eval dense.jsonl --gold qrels.txt --queries queries.jsonl -m Fresh@5,latency.retrieve.p90
  karat eval bm25.trec --gold qrels.txt --profile trec -o trec:-
  karat measures
"""

EXAMPLES = """\b
Examples:
  karat demo
  karat demo -o report.md
"""


def demo(output: Outputs = None) -> None:
    """Score the small set that ships with karat.

    Leaves nothing behind unless -o names a file.

    """
    from karat.cli.publish import publish
    from karat.cli.scoring import Request, score
    from karat.reports.outputs import parse_outputs

    with as_file(files("karat") / "recipes" / "first") as folder:
        request = Request(
            runs=[str(folder / "bm25.trec"), str(folder / "dense.jsonl")],
            gold=str(folder / "qrels.txt"),
            queries=str(folder / "queries.jsonl"),
            measures=["nDCG@5, RR, R@{1,3,5}, P@5"],
            by=["language"],
        )
        outputs = parse_outputs(output or [], inputs=request.files())
        printed = all(one.path is not None for one in outputs)
        report = score(request).report()
        if printed:
            typer.echo(_STORY)
        publish(report, outputs, as_json=False, quiet=False)
        if printed:
            typer.echo(f"\n{_NEXT.format(folder=folder)}", nl=False)
