"""``karat demo``: the small set that ships with karat, compared and held against gates."""

from __future__ import annotations

import typer

from karat.cli import options

_STORY = """\
A help centre of 30 paragraphs, 12 questions with graded gold, two systems: bm25 matches
words, dense matches meanings and logs its latencies. Did dense help, and is it good enough?
"""
_NEXT = """\
What to read off:
  - the gates: R@5 >= 0.90 cannot be judged. Even a perfect system would not show it with 11
    questions; 35 are needed. That is exit code 3 in a build, and 1 for a gate that fails.
  - the comparison: nDCG@5 decides and is better; R@5 and P@5 rose, but may have by chance.
  - every mean has its interval: 11 questions say little, and it shows.
  - bm25 finds no word of 3 questions in any paragraph; they count 0 and are shown as missing.
  - dense timed out once: a failed call counts 0 too, but is never taken for an empty result.
  - P@5 has a ceiling: no system can do better on this gold.
  - by tie order: bm25 gave equal scores, and their order alone moves nDCG@5 by this much.
  - by language: the mean hides that bm25 finds nothing in Spanish.

Try next:
  cd {folder}
  karat compare bm25.trec dense.jsonl --gold qrels.txt -m R@5,nDCG@5 --primary R@5
  karat check --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
  karat eval dense.jsonl --gold qrels.txt --queries queries.jsonl -m Fresh@5,latency.retrieve.p90
  karat eval bm25.trec --gold qrels.txt --profile trec -o trec:-
  karat measures
"""

EXAMPLES = """\b
Examples:
  karat demo
  karat demo -o report.md
"""


def demo(output: options.Outputs = None) -> None:
    """Compare the two systems of the small set that ships with karat.

    Leaves nothing behind unless -o names a file.

    """
    from importlib.resources import as_file, files

    from karat.analysis.verdicts import Rule
    from karat.cli.comparing import compare_runs
    from karat.cli.publish import show
    from karat.cli.scoring import Request
    from karat.reports.outputs import parse_outputs

    with as_file(files("karat") / "recipes" / "first") as folder:
        request = Request(
            runs=[str(folder / "bm25.trec"), str(folder / "dense.jsonl")],
            gold=str(folder / "qrels.txt"),
            queries=str(folder / "queries.jsonl"),
            measures=["nDCG@5, R@5, P@5"],
            by=["language"],
            gates=str(folder / "gates.yaml"),
        )
        outputs = parse_outputs(output or [], inputs=request.files())
        printed = all(one.path is not None for one in outputs)
        report = compare_runs(request, Rule())
        if printed:
            typer.echo(_STORY)
        show(report, outputs, as_json=False, quiet=False)
        if printed:
            typer.echo(f"\n{_NEXT.format(folder=folder)}", nl=False)
