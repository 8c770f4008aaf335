"""``karat judge``: have a model grade the pairs of a pool."""

from __future__ import annotations

from typing import Annotated

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
        help="A prompt of your own with {query} and {text} in it. Default: the one of karat.",
    ),
]
Body = Annotated[
    str | None,
    typer.Option(
        "--body",
        metavar="JSON",
        help="What else every call says, such as '{\"top_p\": 0.1}'; null takes a key away.",
    ),
]
JudgeKind = Annotated[
    str,
    typer.Option(
        "--judge",
        metavar="KIND",
        help="model, or overlap: a stand-in that counts shared words, for trying things offline.",
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option("--concurrency", metavar="N", help="How many calls run at once. Default: 4."),
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N", help="How many calls a second at most.")
]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="SECONDS", help="How long a call may take. Default: 60."),
]
Retries = Annotated[
    str | None,
    typer.Option(
        "--retries",
        metavar="N",
        help="How often to try again what may pass later, after as long as the endpoint asks for,"
        " 300 s at most. Default: 3.",
    ),
]
MaxFailures = Annotated[
    str | None,
    typer.Option(
        "--max-failures",
        metavar="SHARE",
        help="The share of failed pairs past which the labels are partial. Default: 0.05.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with labels that were interrupted, or ask failed pairs."),
]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Throw away the labels that LABELS holds and start over."),
]
Cache = Annotated[
    str | None,
    typer.Option("--cache", metavar="DIR", help="Where judgments are kept. Default: .karat."),
]
Limit = Annotated[
    str | None, typer.Option("--limit", metavar="N", help="Judge only the first N pairs.")
]
PriceIn = Annotated[
    str | None,
    typer.Option("--price-in", metavar="PRICE", help="What a million prompt tokens cost."),
]
PriceOut = Annotated[
    str | None,
    typer.Option("--price-out", metavar="PRICE", help="What a million completion tokens cost."),
]
Json = Annotated[bool, typer.Option("--json", help="Print what came of the calls as JSON.")]

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
    from karat.cli.judging import Request, judge_pool, show_judged

    request = Request(
        pool=pool,
        output=output,
        kind=kind,
        url=url,
        model=model,
        key_env=key_env,
        prompt=prompt,
        body=body,
        concurrency=concurrency,
        rate=rate,
        timeout=timeout,
        retries=retries,
        max_failures=max_failures,
        resume=resume,
        restart=restart,
        cache=cache,
        limit=limit,
        price_in=price_in,
        price_out=price_out,
        quiet=quiet or as_json,
    )
    show_judged(judge_pool(request), as_json=as_json, quiet=quiet)
