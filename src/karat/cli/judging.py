"""From a pool to labels: which judge, which pairs, under which limits, and what is said of it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from karat.cli.interrupts import heed_interrupts
from karat.cli.numbers import whole
from karat.cli.progress import counting
from karat.cli.publish import EXIT_CANNOT_TELL
from karat.errors import InputError, UsageError, unknown
from karat.formats.records import parse
from karat.judging.judge import Judged, Wishes, judge_pairs
from karat.judging.judge_answers import Judge
from karat.judging.judge_cache import JudgmentCache
from karat.judging.judge_endpoint import Access, Endpoint
from karat.judging.judge_pairs import Pair, read_pairs
from karat.judging.judge_prompt import read_prompt
from karat.judging.labels import GRADES
from karat.judging.overlap import Overlap
from karat.own_folder import OWN_FOLDER
from karat.reports.figures import several

# So many kinds of failures are told; the file tells all.
_REASONS = 8
# What says how a model is called; a stand-in that is not called takes none of it.
_OF_MODELS = (
    "url",
    "model",
    "key_env",
    "prompt",
    "body",
    "concurrency",
    "rate",
    "timeout",
    "retries",
    "cache",
    "price_in",
    "price_out",
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat judge`` was asked for, as it was written."""

    pool: str
    output: str
    kind: str = "model"
    url: str | None = None
    model: str | None = None
    key_env: str | None = None
    prompt: str | None = None
    body: str | None = None
    concurrency: str | None = None
    rate: str | None = None
    timeout: str | None = None
    retries: str | None = None
    max_failures: str | None = None
    resume: bool = False
    restart: bool = False
    cache: str | None = None
    limit: str | None = None
    price_in: str | None = None
    price_out: str | None = None
    quiet: bool = False


def judge_pool(request: Request) -> Judged:
    """Judge the pool; everything is checked before the first call."""
    heed_interrupts()
    wishes = _wishes(request)
    _check_places(request)
    make = {"model": _endpoint, "overlap": _stand_in}
    if request.kind not in make:
        raise unknown("judge", request.kind, make)
    judge = make[request.kind](request)
    with closing(judge):
        pairs = _pairs(request)
        cache = (
            JudgmentCache(Path(request.cache or OWN_FOLDER)) if request.kind == "model" else None
        )
        try:
            with counting(judge.rater, len(pairs), quiet=request.quiet) as bar:
                path = Path(request.output)
                return judge_pairs(
                    pairs,
                    judge,
                    path,
                    wishes=wishes,
                    cache=cache,
                    advance=bar.advance,
                    waits=_silent if request.quiet else _tell_wait,
                )
        finally:
            if cache is not None:
                cache.close()


def _tell_wait(seconds: float, why: str) -> None:
    """A line on standard error; the bar of a terminal moves down for it."""
    print(f"karat: {why}: waiting {seconds:,.0f} s", file=sys.stderr, flush=True)


def _silent(seconds: float, why: str) -> None:
    """Say nothing."""


def _endpoint(request: Request) -> Judge:
    if request.url is None or request.model is None:
        lacking = "--url" if request.url is None else "--model"
        raise UsageError(
            f"{lacking} is missing; a model is asked at --url URL --model NAME "
            "(--judge overlap tries things out without one)"
        )
    access = Access(
        url=request.url,
        model=request.model,
        key_env=request.key_env,
        timeout=_amount("--timeout", request.timeout, least=0.001, most=86_400) or 60.0,
        rate=_amount("--rate", request.rate, least=0.001),
        more=_body(request.body),
    )
    return Endpoint(access, read_prompt(request.prompt), os.environ)


def _stand_in(request: Request) -> Judge:
    given = next((name for name in _OF_MODELS if getattr(request, name) is not None), None)
    if given is not None:
        raise UsageError(
            f"--{given.replace('_', '-')} is for a model; --judge overlap asks none: leave it out"
        )
    return Overlap()


def _body(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        body = parse(text, "--body", None)
    except InputError as error:
        raise UsageError(f"--body is {error.what}") from None
    if not isinstance(body, dict):
        raise UsageError('--body is no JSON object; it is such as {"cache_prompt": false}')
    return body


def _pairs(request: Request) -> list[Pair]:
    pairs = read_pairs(request.pool)
    return pairs if request.limit is None else pairs[: whole("--limit", request.limit)]


def _wishes(request: Request) -> Wishes:
    if request.resume and request.restart:
        raise UsageError("--resume goes on and --restart starts over; give one of them")
    if (request.price_in is None) != (request.price_out is None):
        raise UsageError("--price-in and --price-out go together; give both")
    if request.cache == "":
        raise UsageError("--cache is empty; name a folder, such as .karat")
    if request.limit is not None:
        whole("--limit", request.limit)
    share = _amount("--max-failures", request.max_failures, least=0, most=1)
    return Wishes(
        concurrency=whole("--concurrency", request.concurrency or "4", most=256),
        retries=whole("--retries", request.retries or "3", least=0, most=100),
        max_failures=Wishes.max_failures if share is None else share,
        resume=request.resume,
        restart=request.restart,
        price_in=_amount("--price-in", request.price_in, least=0),
        price_out=_amount("--price-out", request.price_out, least=0),
    )


def _check_places(request: Request) -> None:
    output = os.path.realpath(request.output)
    for name in (request.pool, request.prompt):
        if name is not None and name != "-" and os.path.realpath(name) == output:
            raise UsageError(f"output {request.output!r} is also an input; choose another name")


def _amount(option: str, text: str | None, *, least: float, most: float = 1e9) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if least <= number <= most:
        return number
    upto = "" if most >= 1e9 else f" to {most:g}"
    raise UsageError(f"{option} is {text!r}; a number from {least:g}{upto} is expected")


def show_judged(judged: Judged, *, as_json: bool, quiet: bool) -> None:
    """Say what came of the calls, and leave with 3 if the labels are partial."""
    if as_json:
        typer.echo(json.dumps(judged.document(), indent=2, ensure_ascii=False))
    elif not quiet:
        for line in lines_on(judged):
            typer.echo(line)
    if judged.partial:
        told = f"{judged.failed:,} of {several(judged.pairs, 'pair')}"
        again = "ask them again with --resume"
        typer.echo(f"karat: partial: {told} could not be judged; {again}", err=True)
        raise typer.Exit(EXIT_CANNOT_TELL)


def lines_on(judged: Judged) -> list[str]:
    """What came of the calls, for a reader."""
    if not judged.pairs:
        return [f"{judged.rater}: nothing is left to judge in the pool: 0 labels → {judged.path}"]
    tally, grades = judged.tally, reversed(GRADES)
    graded = ", ".join(f"{judged.grades[grade]:,} of grade {grade}" for grade in grades)
    lines = [f"{judged.rater}: {several(judged.pairs, 'pair')}: {graded} → {judged.path}"]
    counts = {"cached": tally.cached, "from before": judged.kept, "tried again": tally.retried}
    asked = [several(tally.asked, "pair") + " asked"]
    asked += [f"{number:,} {what}" for what, number in counts.items() if number]
    lines.append("  " + ", ".join(asked) + _spent(judged))
    if judged.failed:
        lines.append(f"  {several(judged.failed, 'pair')} without a grade:")
        told = judged.reasons.most_common(_REASONS)
        lines += [f"    {count:,} × {reason}" for reason, count in told]
        if more := judged.failed - sum(count for _, count in told):
            lines.append(f"    {more:,} for other reasons, told in {judged.path}")
    return lines


def _spent(judged: Judged) -> str:
    """The tokens that calls took, and what they cost."""
    tally = judged.tally
    told = ""
    if tally.prompt_tokens or tally.completion_tokens:
        prompt, completion = tally.prompt_tokens, tally.completion_tokens
        told = f" · {prompt:,} prompt and {completion:,} completion tokens"
    if judged.cost is not None:
        told += f", cost {judged.cost:,.4f}"
    if tally.untold:
        did_not = several(
            tally.untold, "answer did not say what it", "answers did not say what they"
        )
        told += f" · {did_not} took"
    return told
