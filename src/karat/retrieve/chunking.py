"""Chunking: documents split into windows, sentences or sections, with their positions.

Gives places in the text, never copies of it: a chunk is the text from its start to its end.
Every way is linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Annotated, Any, Literal, NamedTuple

import polars as pl
from pydantic import Field, model_validator

from karat.data.columns import Source, doc_of
from karat.data.tables import Corpus
from karat.errors import InputError, UsageError, unknown
from karat.formats.settings import ConfigModel, Place, validate

Unit = Literal["chars", "words"]


class Chunk(NamedTuple):
    """A part of a text by position, and the headings above it."""

    start: int
    end: int
    section: str | None = None


Stretch = tuple[int, int]

_WORD = re.compile(r"\S+")
_BLANK = re.compile(r"\s*")

# Ends of sentences: those of the first kind need white space behind them, others do not.
_STOPS = ".!?\u2026\u2025\u203c\u2047\u2048\u2049"
_FULL_STOPS = (
    "\u3002\uff01\uff1f\uff61"  # Chinese and Japanese
    "\u061f\u06d4\u0964\u0965\u0589\u1362\u1367\u1368\u17d4\u17d5\u104a\u104b\u1803\u1809"
)
_CLOSERS = "\"'\u2019\u201d\u00bb\u203a)\\]}\u300d\u300f\uff09\u3011\u300b\u3009*_`"
_OPENERS = "\"'\u2018\u201c\u00ab\u2039([{\u00bf\u00a1*_`-\u2014"
# A blank line, or a line that begins a heading, a list item, a quotation, a table or code.
_BREAK = re.compile(
    rf"[{_STOPS}{_FULL_STOPS}]++[{_CLOSERS}]*+"
    r"|\n[^\S\n]*+\n\s*+"
    r"|\n(?=[ \t]*+(?:[-*+\u2022][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|>|\||```|~~~))"
)
_LOOK_BACK = 24
# Words whose full stop ends no sentence: before a name, before a number, and anywhere.
_BEFORE_NAMES = re.compile(
    r"Mrs?|Ms|Dra?|Prof|St|Rev|Gen|Col|Capt|Lt|Sgt|Hon|Pres|Gov|Sen|Rep|Sra?|Srta|Uds?|Mme|Mlle"
    r"|Hr|Fr|Avda?"
)
_BEFORE_NUMBERS = re.compile(
    r"nos?|nr|figs?|eqs?|secs?|ch|vols?|art|pp?|abb|bd|tab|n\u00fam|p\u00e1g|refs?|eds?|cap",
    re.IGNORECASE,
)
_ANYWHERE = re.compile(r"vs|cf|approx|vgl|bzw|ca|incl|resp|al", re.IGNORECASE)
_ASKS = frozenset("!?\u203c\u2047\u2048\u2049")

_ATX = re.compile(r" {0,3}(#{1,6})(?![^ \t\r])")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*\Z)|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t\r]*\Z")
_NO_PARAGRAPH = re.compile(r" {0,3}(?:[-*+][ \t]|[>|]|\d{1,9}[.)][ \t])|    |\t")
_LONGEST_TITLE = 200
BETWEEN_HEADINGS = " > "


def fixed(text: str, chunker: Chunker) -> Iterator[Chunk]:
    """Yield windows of one size, each overlapping the one before."""
    if chunker.unit == "chars":
        yield from (Chunk(*window) for window in _windows(len(text), chunker))
        return
    words = [word.span() for word in _WORD.finditer(text)]
    for first, last in _windows(len(words), chunker):
        yield Chunk(words[first][0], words[last - 1][1])


def _windows(length: int, chunker: Chunker) -> Iterator[Stretch]:
    start = end = 0
    while end < length:
        end = min(start + chunker.size, length)
        yield start, end
        start = end - chunker.overlap


def sentence(text: str, chunker: Chunker) -> Iterator[Chunk]:
    """Yield as many whole sentences as fit; a longer one is split between words."""
    yield from (Chunk(*place) for place in _packed(text, (0, len(text)), _Ruler(text, chunker)))


def heading(text: str, chunker: Chunker) -> Iterator[Chunk]:
    """Yield a chunk per section; a longer section is split into sentences."""
    ruler = _Ruler(text, chunker)
    for start, end, path in _sections(text):
        place = _trimmed(text, start, end)
        if place is None:
            continue
        fits = ruler.length(*place) <= chunker.size
        for piece in [place] if fits else _packed(text, place, ruler):
            yield Chunk(*piece, path)


class _Ruler:
    """Measures parts of a text in characters or words; a part starts with no white space."""

    def __init__(self, text: str, chunker: Chunker) -> None:
        self.chunker = chunker
        words = chunker.unit == "words"
        self._starts = [word.start() for word in _WORD.finditer(text)] if words else None

    def length(self, start: int, end: int) -> int:
        if self._starts is None:
            return end - start
        return 1 + bisect_left(self._starts, end) - bisect_right(self._starts, start)

    def reach(self, text: str, start: int) -> int:
        """Return where a part of the full size must end, between words if possible."""
        size = self.chunker.size
        if self._starts is not None:
            return self._starts[bisect_right(self._starts, start) + size - 1]
        end = start + size
        if text[end].isspace():
            return end
        while end > start and not text[end - 1].isspace():
            end -= 1
        return end if end > start else start + size


def _packed(text: str, place: Stretch, ruler: _Ruler) -> Iterator[Stretch]:
    """Join sentences up to the size, and repeat the last ones up to the overlap."""
    pieces = [
        piece for stretch in sentences(text, *place) for piece in _short(text, stretch, ruler)
    ]
    size, overlap = ruler.chunker.size, ruler.chunker.overlap
    first = end = 0
    while end < len(pieces):
        # What is repeated must leave room for something new.
        while first < end and ruler.length(pieces[first][0], pieces[end][1]) > size:
            first += 1
        end += 1
        while end < len(pieces) and ruler.length(pieces[first][0], pieces[end][1]) <= size:
            end += 1
        yield pieces[first][0], pieces[end - 1][1]
        first += 1
        while first < end and ruler.length(pieces[first][0], pieces[end - 1][1]) > overlap:
            first += 1


def _short(text: str, place: Stretch, ruler: _Ruler) -> Iterator[Stretch]:
    """Yield a sentence in pieces that fit."""
    start, end = place
    while ruler.length(start, end) > ruler.chunker.size:
        cut = ruler.reach(text, start)
        piece = _trimmed(text, start, cut)
        if piece is not None:
            yield piece
        start = _after_blank(text, cut, end)
    yield start, end


def sentences(text: str, start: int, end: int) -> Iterator[Stretch]:
    """Yield the sentences of a part in order, without the white space around them.

    A boundary that is overlooked makes a longer sentence; nothing is ever lost.
    """
    begin = start
    for match in _BREAK.finditer(text, start, end):
        if not _is_end(text, match, end):
            continue
        place = _trimmed(text, begin, match.end())
        if place is not None:
            yield place
        begin = match.end()
    last = _trimmed(text, begin, end)
    if last is not None:
        yield last


def _is_end(text: str, match: re.Match[str], end: int) -> bool:
    """Return whether a sentence ends here: not after abbreviations, initials, list numbers."""
    marks = match[0]
    if marks[0] == "\n" or any(mark in _FULL_STOPS for mark in marks):
        return True
    end_of_match = match.end()
    if end_of_match < end and not text[end_of_match].isspace():
        return False
    after = _after_blank(text, end_of_match, end)
    lower = after < end and text[after].islower()
    if not _ASKS.isdisjoint(marks):
        return not (lower and marks[-1] in _CLOSERS)
    if lower:
        return False
    if marks[0] != "." or marks.startswith(".."):
        return True
    return not _abbreviates(text, match.start(), text[after : after + 1])


def _abbreviates(text: str, stop: int, after: str) -> bool:
    """Return whether the full stop belongs to the word before it."""
    start = max(0, stop - _LOOK_BACK)
    line = text[start:stop].rpartition("\n")[2]
    words = line.split()
    if not words or line[-1].isspace():
        return False
    word = words[-1].lstrip(_OPENERS)
    if word.isdigit():
        return len(words) == 1 and (start == 0 or "\n" in text[start:stop])
    if len(word) == 1:
        return word.isalpha() and word != "I"
    parts = word.split(".")
    dotted = len(parts) > 1 and all(part.isalpha() and len(part) <= 2 for part in parts)
    if _BEFORE_NUMBERS.fullmatch(word) and after.isdigit():
        return True
    return dotted or bool(_BEFORE_NAMES.fullmatch(word) or _ANYWHERE.fullmatch(word))


def _after_blank(text: str, start: int, end: int) -> int:
    match = _BLANK.match(text, start, end)
    return start if match is None else match.end()


def _trimmed(text: str, start: int, end: int) -> Stretch | None:
    """Return a part without the white space around it; None if nothing is left."""
    start = _after_blank(text, start, end)
    return (start, start + len(text[start:end].rstrip())) if start < end else None


class _Heading(NamedTuple):
    start: int
    body: int
    level: int
    title: str


def _sections(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Yield sections with the path of their headings; None above the first heading.

    A heading with nothing but deeper headings below it opens the first of these.
    """
    headings = list(_headings(text))
    path: list[_Heading] = []
    begun = headings[0].start if headings else len(text)
    yield 0, begun, None
    for current, following in zip_longest(headings, headings[1:]):
        path = [*(above for above in path if above.level < current.level), current]
        end = len(text) if following is None else following.start
        empty = not text[current.body : end].strip()
        if empty and following is not None and following.level > current.level:
            continue
        titles = (above.title for above in path if above.title)
        yield begun, end, BETWEEN_HEADINGS.join(titles) or None
        begun = end


def _headings(text: str) -> Iterator[_Heading]:
    """Yield Markdown headings, with # and underlined, but not in fenced code.

    An underlined heading is one line with nothing above it, so that a rule below a
    paragraph, or the front matter of a page, makes none.
    """
    fence: str | None = None
    alone = True
    above: tuple[int, str] | None = None
    next_start = 0
    for line in text.split("\n"):
        start, next_start = next_start, next_start + len(line) + 1
        body = min(next_start, len(text))
        fenced = _FENCE.match(line)
        if fence is not None:
            if fenced and fenced[1].startswith(fence) and not line[fenced.end() :].strip():
                fence = None
            continue
        underline = _UNDERLINE.match(line)
        if (marked := _ATX.match(line)) is not None:
            yield _Heading(start, body, len(marked[1]), _title(line[marked.end() :]))
            above, alone = None, True
        elif underline is not None:
            if above is not None:
                yield _Heading(above[0], body, 1 if "=" in underline[1] else 2, _title(above[1]))
            above, alone = None, above is not None or "=" in underline[1]
        elif fenced or not line.strip():
            fence = fenced[1] if fenced else None
            above, alone = None, True
        else:
            above = (start, line) if alone and not _NO_PARAGRAPH.match(line) else None
            alone = False


def _title(text: str) -> str:
    """Return the text of a heading without closing #."""
    title = text.strip()
    bare = title.rstrip("#")
    if not bare or bare[-1].isspace():
        title = bare.rstrip()
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}\u2026"


Algo = Literal["fixed", "sentence", "heading"]

# A word is about five characters and a space.
_SIZES: Mapping[str, int] = {"chars": 1200, "words": 240}
_OVERLAP = 6
_INTEGER = re.compile(r"-?[0-9]{1,15}")

ALGOS: Mapping[Algo, tuple[str, Callable[[str, Chunker], Iterator[Chunk]]]] = {
    "fixed": ("windows of one size", fixed),
    "sentence": ("as many whole sentences as fit", sentence),
    "heading": ("sections under Markdown headings", heading),
}


class Chunker(ConfigModel):
    """One way to split documents, with all its settings."""

    algo: Algo = Field(description="fixed, sentence or heading")
    # Both are completed before they are checked.
    size: Annotated[int, Field(ge=1, le=10**9)] = Field(  # type: ignore[assignment]
        None, description="a whole number from 1; 1200 characters or 240 words if absent"
    )
    overlap: Annotated[int, Field(ge=0)] = Field(  # type: ignore[assignment]
        None, description="a whole number from 0, below size; a sixth of size if absent"
    )
    unit: Unit = Field("chars", description="chars or words")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        complete = {key: value for key, value in settings.items() if value is not None}
        size = complete.setdefault("size", _SIZES.get(str(complete.get("unit", "chars")), 1))
        if isinstance(size, int):
            complete.setdefault("overlap", size // _OVERLAP)
        return complete

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], place: Place | None = None, *, name: str = "chunker"
    ) -> Chunker:
        """Return the chunker of a mapping, such as ``{algo: fixed, size: 800}``.

        Errors tell its place in a file, or the name.

        >>> Chunker.of({"algo": "fixed"})
        Chunker(algo='fixed', size=1200, overlap=200, unit='chars')
        """
        where = place or Place(name)
        try:
            chunker = validate(cls, settings, where)
            if chunker.overlap >= chunker.size:
                raise where.error(
                    f"overlap is {chunker.overlap} and size is {chunker.size}; overlap must be "
                    "below size"
                )
        except InputError as error:
            if place is not None:
                raise
            raise UsageError(str(error)) from None
        return chunker

    @classmethod
    def parse(cls, text: str) -> Chunker:
        """Return the chunker of a text from the command line.

        >>> Chunker.parse("fixed:size=800,overlap=100") == Chunker.parse("fixed:800/100")
        True
        """
        algo, _, settings_text = text.partition(":")
        if algo.strip() not in ALGOS:
            raise unknown("chunker", algo.strip(), ALGOS, inside=text)
        settings: dict[str, Any] = {"algo": algo.strip()}
        for part in settings_text.split(",") if settings_text.strip() else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            names = (key,) if equals else ("size", "overlap")
            pairs = zip(names, (value,) if equals else key.split("/", 1), strict=False)
            for name, number in pairs:
                is_number = _INTEGER.fullmatch(number)
                if not is_number and not equals:
                    raise UsageError(
                        f"chunker {text!r}: {key!r} is not understood; write KEY=VALUE, or size "
                        "and overlap as in fixed:1200/200"
                    )
                if name in settings:
                    raise UsageError(f"chunker {text!r}: {name} is given twice; keep one")
                settings[name] = int(number) if is_number else number
        return cls.of(settings, name=f"chunker {text!r}")

    @property
    def name(self) -> str:
        """Its name in reports and on the command line: ``fixed:1200/200``."""
        unit = "" if self.unit == "chars" else f",unit={self.unit}"
        return f"{self.algo}:{self.size}/{self.overlap}{unit}"

    def cut(self, text: str) -> Iterator[Chunk]:
        """Yield the chunks of a text in order; a blank text has none."""
        if text.strip():
            yield from ALGOS[self.algo][1](text, self)


def chunk_corpus(corpus: Corpus, chunker: Mapping[str, Any] | Chunker) -> Corpus:
    """Split documents into chunks ``doc#00000``, ``doc#00001`` …, with ``start`` and ``end``.

    A chunk's text is its document's from start to end, counted in characters. Attributes of
    the document are carried over, except for ``tokens``, which counts the whole of it. An
    item is a document of its own, called by its id unless a ``doc_id`` says otherwise.

    >>> corpus = Corpus.from_dict({"faq": {"text": "By card. By app.", "version": "v2"}})
    >>> chunk_corpus(corpus, {"algo": "sentence", "size": 8, "overlap": 0}).frame.rows()
    [('faq#00000', 'faq', 'By card.', 0, 8, 'v2'), ('faq#00001', 'faq', 'By app.', 9, 16, 'v2')]
    """
    method = chunker if isinstance(chunker, Chunker) else Chunker.of(chunker)
    named_texts = zip(documents(corpus), corpus.frame["text"], strict=True)
    rows = [
        (f"{name}#{number:05d}", name, text[chunk.start : chunk.end], *chunk, row)
        for row, (name, text) in enumerate(named_texts)
        for number, chunk in enumerate(method.cut(text))
    ]
    chunks = pl.DataFrame(rows, schema=_COLUMNS, orient="row")
    row_of_chunk = chunks["row"]
    chunks = chunks.drop("row" if method.algo == "heading" else ("section", "row"))
    carried = corpus.frame.drop(*chunks.columns, "tokens", strict=False)[row_of_chunk]
    source = Source(f"{corpus.source.name} cut by {method.name}")
    return Corpus(pl.concat([chunks, carried], how="horizontal"), source=source)


_COLUMNS: Mapping[str, Any] = {
    "item_id": pl.String,
    "doc_id": pl.String,
    "text": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "section": pl.String,
    "row": pl.UInt32,
}


def documents(corpus: Corpus) -> list[str]:
    """Return the names of whole documents: item ids, or doc_ids that differ from them."""
    for name in ("start", "end"):
        if name in corpus.frame.columns:
            raise InputError(
                f"its items have {name!r}, so they are chunks already; a chunker cuts whole"
                " documents: give those",
                where=corpus.source.name,
            )
    named_apart = pl.col("doc_id") != doc_of(pl.col("item_id"))
    named = corpus.frame.select(
        "item_id", doc_id=pl.when(named_apart).then("doc_id").otherwise("item_id")
    )
    shared = named.filter(pl.col("doc_id").is_duplicated())
    if shared.height:
        doc = shared["doc_id"][0]
        first, other = shared.filter(pl.col("doc_id") == doc)["item_id"].to_list()[:2]
        raise InputError(
            f"items {first!r} and {other!r} are both of document {doc!r}; a chunker cuts whole"
            " documents: join their texts, or leave doc_id out",
            where=corpus.source.name,
        )
    return named["doc_id"].to_list()
