"""``karat judge``: have a model grade the pairs of a pool."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from karat.cli import options

Pool = Annotated[
    str,
    typer.Argument(metavar="POOL", help="Pairs with their texts as JSONL; - is standard input."),
]
Labels = Annotated[
    str, typer.Option("-o", "--output", metavar="LABELS", help="The label file, as JSONL.")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The base of the endpoint, such as http://127.0.0.1:8080/v1."
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model, as the endpoint calls it."),
]
KeyEnv = Annotated[
    str | None,
    typer.Option(
        "--key-env",
        metavar="VARIABLE",
        help="The environment variable with the key. Default: OPENAI_API_KEY, if it is set.",
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="FILE",
        help="Your own prompt, with {query} and {text} in it. Default: karat's prompt.",
    ),
]
Body = Annotated[
    str | None,
    typer.Option(
        "--body",
        metavar="JSON",
        help="Further fields of every call, such as '{\"top_p\": 0.1}'; null removes one.",
    ),
]
JudgeKind = Annotated[
    str,
    typer.Option(
        "--judge",
        metavar="KIND",
        help="model, or overlap: a stand-in that counts shared words, for trials offline.",
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="N", help="How many calls run at once. Default: 4."),
]
Rate = Annotated[str | None, typer.Option("--rate", metavar="N", help="The most calls per second.")]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="SECONDS", help="How long a call may take. Default: 60."),
]
Retries = Annotated[
    str | None,
    typer.Option(
        "--retries",
        metavar="N",
        help="How often to retry a call that may succeed later, after as long as the endpoint asks"
        " for, 300 s at most. Default: 3.",
    ),
]
MaxFailures = Annotated[
    str | None,
    typer.Option(
        "--max-failures",
        metavar="SHARE",
        help="Above this share of failed pairs the labels are partial. Default: 0.05.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Resume labels that were interrupted, or ask failed pairs again."
    ),
]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Delete the labels that LABELS holds and start over."),
]
Cache = Annotated[
    str | None,
    typer.Option("--cache", metavar="DIR", help="Where judgments are cached. Default: .karat."),
]
Limit = Annotated[
    str | None, typer.Option("--limit", metavar="N", help="Judge only the first N pairs.")
]
PriceIn = Annotated[
    str | None,
    typer.Option("--price-in", metavar="PRICE", help="The price of a million prompt tokens."),
]
PriceOut = Annotated[
    str | None,
    typer.Option("--price-out", metavar="PRICE", help="The price of a million completion tokens."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")]

EXAMPLES = """\b
Examples:
  karat judge pool.jsonl --url http://127.0.0.1:8080/v1 --model qwen3 -o labels.jsonl
  karat judge pool.jsonl --url https://api.openai.com/v1 --model gpt-4.1-mini \\
    -o labels.jsonl --price-in 0.40 --price-out 1.60 --rate 10
  karat judge pool.jsonl --judge overlap -o labels.jsonl
"""


def judge(
    pool: Pool,
    output: Labels,
    url: Url = None,
    model: Model = None,
    key_env: KeyEnv = None,
    prompt: Prompt = None,
    body: Body = None,
    kind: JudgeKind = "model",
    concurrency: Concurrency = None,
    rate: Rate = None,
    timeout: Timeout = None,
    retries: Retries = None,
    max_failures: MaxFailures = None,
    resume: Resume = False,
    restart: Restart = False,
    cache: Cache = None,
    limit: Limit = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    as_json: Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Have a model grade every pair of a pool: 2, 1 or 0, with a short rationale.

    A pair that cannot be judged is kept with its reason, never as a 0. Exits with 3 when more
    than --max-failures of the pairs failed. An empty pool makes an empty label file.

    """
    import json

    import karat
    from karat.cli.label_commands import show
    from karat.cli.numbers import decimal, optional_whole
    from karat.cli.progress import counting
    from karat.cli.publish import EXIT_CANNOT_TELL
    from karat.cli.streams import heed_interrupts

    heed_interrupts()
    silent = quiet or as_json
    share = decimal("--max-failures", max_failures, least=0, most=1)
    labels = karat.judge(
        pool,
        output,
        judge=kind,
        url=url,
        model=model,
        key_env=key_env,
        prompt=prompt,
        body=_json_object(body),
        concurrency=optional_whole("--concurrency", concurrency, most=256),
        rate=decimal("--rate", rate, least=0.001),
        timeout=decimal("--timeout", timeout, least=0.001, most=86_400),
        retries=optional_whole("--retries", retries, least=0, most=100),
        max_failures=0.05 if share is None else share,
        resume=resume,
        restart=restart,
        cache=cache,
        limit=optional_whole("--limit", limit),
        price_in=decimal("--price-in", price_in, least=0),
        price_out=decimal("--price-out", price_out, least=0),
        progress=lambda rater, pairs: counting(rater, pairs, quiet=silent),
        report_wait=_ignore_wait if silent else _report_wait,
    )
    if as_json:
        typer.echo(json.dumps(labels.to_dict(), indent=2, ensure_ascii=False))
    elif not quiet:
        show(labels)
    if labels.partial:
        typer.echo(
            f"karat: partial: {labels.failed:,} of {labels.pairs:,} pairs could not be judged; ask"
            " them again with --resume",
            err=True,
        )
        raise typer.Exit(EXIT_CANNOT_TELL)


def _json_object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    from karat.errors import InputError, UsageError
    from karat.formats.json_records import parse_json

    try:
        body = parse_json(text, "--body", None)
    except InputError as error:
        raise UsageError(f"--body is {error.what}") from None
    if not isinstance(body, dict):
        raise UsageError('--body is no JSON object; an example is {"cache_prompt": false}')
    return body


def _report_wait(seconds: float, why: str) -> None:
    """Print a line on standard error; the progress bar moves down for it."""
    print(f"karat: {why}: waiting {seconds:,.0f} s", file=sys.stderr, flush=True)


def _ignore_wait(seconds: float, why: str) -> None:
    pass
