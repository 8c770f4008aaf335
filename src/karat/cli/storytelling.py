"""From a story and its queries to a result: options checked, files read, scenes ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import typer

from karat.analysis.story_quality import DEFAULT_K, Quality, Ranking, story_quality
from karat.cli.numbers import whole
from karat.cli.publish import EXIT_FAILED
from karat.errors import UsageError, unknown
from karat.formats.story import Asked, read_asked, read_story
from karat.reports.figures import several
from karat.reports.notes import nothing_found
from karat.reports.outputs import Output, packed, parse_outputs, write_stdout, write_whole
from karat.reports.terminal import standard_console
from karat.reports.to_story import show_story, story_to_json
from karat.retrievers.kinds import maker
from karat.retrievers.protocol import Finder, Query
from karat.retrievers.vsa import MOST_DIM, MOST_SEED
from karat.retrievers.workshop import Workshop
from karat.tables import Corpus

# The profiles, and the retriever that each stands for.
_PROFILES = {"vsa": "vsa", "bow": "bow", "basic": "bow"}
_PREFIX = "story:"
_MOST_K = 1_000_000
# So many names tell what a note is about.
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``karat story`` was asked for, as it was typed."""

    story: str
    queries: str | None = None
    profile: str = "vsa"
    dim: str | None = None
    seed: str | None = None
    top_k: str | None = None
    lenient: bool = False


@dataclass(frozen=True, eq=False)
class Result:
    """The quality of a story, what it was measured with, and what else should be known."""

    quality: Quality
    about: str
    notes: list[str]


def outputs_of(request: Request, texts: Sequence[str], *, as_json: bool) -> list[Output]:
    """Every ``-o``; what could not be written later is refused before any work."""
    files = [f"json:{_file(text)}" for text in texts]
    read = [request.story, *([] if request.queries is None else [request.queries])]
    return parse_outputs(files, inputs=read, stdout_taken=as_json)


def _file(text: str) -> str:
    file = text.removeprefix(_PREFIX)
    named = text != file or file == "-" or file.lower().removesuffix(".gz").endswith(".json")
    if not named or not file:
        raise UsageError(f"output {text!r}: use out.json, story:FILE or -")
    return file


def measure(request: Request) -> Result:
    """Read the story and its queries, and rank the scenes for each."""
    settings = _settings(request)
    k = DEFAULT_K if request.top_k is None else whole("--top-k", request.top_k, most=_MOST_K)
    if request.story == request.queries == "-":
        raise UsageError("story and queries cannot both be -; standard input is read once")
    told = read_story(request.story, lenient=request.lenient)
    asked = [] if request.queries is None else read_asked(request.queries)
    kind = maker(_PROFILES[request.profile])
    options = kind.Options(**settings)
    finder = kind.make(options, Workshop(corpus=lambda: told.corpus), {})
    quality = story_quality(asked, _ranker(finder, told.corpus), k=k)
    # Scenes have no titles to read.
    chosen = options.model_dump(exclude={"title"})
    with_what = [f"{name} {value}" for name, value in chosen.items()]
    scenes = several(told.corpus.frame.height, "scene")
    about = f"{scenes} · {', '.join([request.profile, *with_what])}"
    notes = [*told.notes, *_notes(asked, told.corpus, request.profile)]
    if quality.labelled and all(one.rank is None for one in quality.labelled):
        notes.append(nothing_found(len(quality.labelled)))
    return Result(quality, about, notes)


def _settings(request: Request) -> dict[str, int]:
    """The options of the profile's retriever; those of another are refused, not ignored."""
    if request.profile not in _PROFILES:
        raise unknown("profile", request.profile, _PROFILES)
    given = {"dim": (request.dim, 1, MOST_DIM), "seed": (request.seed, -MOST_SEED, MOST_SEED)}
    settings: dict[str, int] = {}
    for name, (text, least, most) in given.items():
        if text is not None and request.profile != "vsa":
            raise UsageError(f"--{name} is for --profile vsa; {request.profile} counts words")
        if text is not None:
            settings[name] = whole(f"--{name}", text, least=least, most=most)
    return settings


def _ranker(finder: Finder, corpus: Corpus) -> Callable[[Asked], Ranking]:
    """What ranks every scene for a query; ties are in story order."""

    def rank(one: Asked) -> Ranking:
        (answer,) = finder.find([Query(one.query_id, one.text)], corpus.frame.height)
        return [(hit.item_id, hit.score or 0.0) for hit in answer.hits]

    return rank


def _notes(asked: Sequence[Asked], corpus: Corpus, profile: str) -> Iterator[str]:
    """What explains a surprising number."""
    blank = sum(not one.text for one in asked)
    if blank:
        yield f"{several(blank, 'query', 'queries')} without text left out"
    scenes = set(corpus.frame["item_id"])
    named = {name: None for one in asked if one.text for name in sorted(one.relevant - scenes)}
    if named:
        yield f"gold that is no scene, and is never found: {_some(named)}"
    empty = corpus.frame.filter(corpus.frame["text"].str.strip_chars() == "")["item_id"].to_list()
    if empty and profile == "vsa":
        yield f"scenes without text, which vsa may rank above others: {_some(empty)}"


def _some(names: Sequence[str] | dict[str, None]) -> str:
    listed = ", ".join(list(names)[:_NAMED])
    rest = len(names) - _NAMED
    return listed if rest <= 0 else f"{listed} and {rest:,} more"


def publish(result: Result, outputs: Sequence[Output], *, as_json: bool, quiet: bool) -> None:
    """Write the files, print the result, and leave with the code that it asks for."""
    data = story_to_json(result.quality)
    files = [output.path for output in outputs if output.path is not None]
    write_whole([(path, packed(data, path)) for path in files])
    if as_json or any(output.path is None for output in outputs):
        write_stdout(data)
        for note in result.notes:
            typer.echo(f"karat: {note}", err=True)
    elif not quiet:
        show_story(result.quality, result.about, result.notes, standard_console())
    elif result.quality.passed is None:
        typer.echo(f"karat: skipped: {result.quality.why_skipped}", err=True)
    # A metric that was skipped is no failure.
    if result.quality.passed is False:
        raise typer.Exit(EXIT_FAILED)
