"""Where a text is cut: windows, whole sentences, sections under headings.

Gives places in the text, never copies of it: a chunk is the text from its start to its end.
Every way is linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

Unit = Literal["chars", "words"]


class Chunk(NamedTuple):
    """A stretch of a text, and the headings that it stands under."""

    start: int
    end: int
    section: str | None = None


@dataclass(frozen=True)
class Limits:
    """How long a chunk may be, and how much of it the next one may repeat."""

    size: int
    overlap: int
    unit: Unit


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


def fixed(text: str, limits: Limits) -> Iterator[Chunk]:
    """Windows of one size; each begins so much before the end of the one before it."""
    if limits.unit == "chars":
        yield from (Chunk(*window) for window in _windows(len(text), limits))
        return
    words = [word.span() for word in _WORD.finditer(text)]
    for first, last in _windows(len(words), limits):
        yield Chunk(words[first][0], words[last - 1][1])


def _windows(length: int, limits: Limits) -> Iterator[Stretch]:
    start = end = 0
    while end < length:
        end = min(start + limits.size, length)
        yield start, end
        start = end - limits.overlap


def sentence(text: str, limits: Limits) -> Iterator[Chunk]:
    """As many whole sentences as fit; one that is too long is cut between its words."""
    yield from (Chunk(*place) for place in _packed(text, (0, len(text)), _Ruler(text, limits)))


def heading(text: str, limits: Limits) -> Iterator[Chunk]:
    """A chunk a section; one that is too long is cut into sentences."""
    ruler = _Ruler(text, limits)
    for start, end, path in _sections(text):
        place = _trimmed(text, start, end)
        if place is None:
            continue
        fits = ruler.length(*place) <= limits.size
        for piece in [place] if fits else _packed(text, place, ruler):
            yield Chunk(*piece, path)


class _Ruler:
    """How long a stretch is, in characters or words; a stretch begins with no white space."""

    def __init__(self, text: str, limits: Limits) -> None:
        self.limits = limits
        words = limits.unit == "words"
        self._starts = [word.start() for word in _WORD.finditer(text)] if words else None

    def length(self, start: int, end: int) -> int:
        if self._starts is None:
            return end - start
        return 1 + bisect_left(self._starts, end) - bisect_right(self._starts, start)

    def reach(self, text: str, start: int) -> int:
        """Where a stretch of the full size must end, between words if it can."""
        size = self.limits.size
        if self._starts is not None:
            return self._starts[bisect_right(self._starts, start) + size - 1]
        end = start + size
        if text[end].isspace():
            return end
        while end > start and not text[end - 1].isspace():
            end -= 1
        return end if end > start else start + size


def _packed(text: str, place: Stretch, ruler: _Ruler) -> Iterator[Stretch]:
    """Sentences put together up to the size, the last ones repeated up to the overlap."""
    pieces = [piece for whole in sentences(text, *place) for piece in _short(text, whole, ruler)]
    size, overlap = ruler.limits.size, ruler.limits.overlap
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
    """A sentence in pieces that each fit."""
    start, end = place
    while ruler.length(start, end) > ruler.limits.size:
        cut = ruler.reach(text, start)
        piece = _trimmed(text, start, cut)
        if piece is not None:
            yield piece
        start = _after_blank(text, cut, end)
    yield start, end


def sentences(text: str, start: int, end: int) -> Iterator[Stretch]:
    """The sentences of a stretch in order, without the white space around them.

    A boundary that is overlooked makes a longer sentence; nothing is ever lost.
    """
    begun = start
    for found in _BREAK.finditer(text, start, end):
        if not _is_end(text, found, end):
            continue
        place = _trimmed(text, begun, found.end())
        if place is not None:
            yield place
        begun = found.end()
    last = _trimmed(text, begun, end)
    if last is not None:
        yield last


def _is_end(text: str, found: re.Match[str], end: int) -> bool:
    """Whether a sentence ends here: not behind abbreviations, initials and list numbers."""
    marks = found[0]
    if marks[0] == "\n" or any(mark in _FULL_STOPS for mark in marks):
        return True
    behind = found.end()
    if behind < end and not text[behind].isspace():
        return False
    after = _after_blank(text, behind, end)
    lower = after < end and text[after].islower()
    if not _ASKS.isdisjoint(marks):
        return not (lower and marks[-1] in _CLOSERS)
    if lower:
        return False
    if marks[0] != "." or marks.startswith(".."):
        return True
    return not _abbreviates(text, found.start(), text[after : after + 1])


def _abbreviates(text: str, stop: int, after: str) -> bool:
    """Whether the full stop at this place belongs to the word before it."""
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
    found = _BLANK.match(text, start, end)
    return start if found is None else found.end()


def _trimmed(text: str, start: int, end: int) -> Stretch | None:
    """A stretch without the white space around it; None where there is nothing else."""
    start = _after_blank(text, start, end)
    return (start, start + len(text[start:end].rstrip())) if start < end else None


class _Heading(NamedTuple):
    start: int
    body: int
    level: int
    title: str


def _sections(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Sections with the path of their headings; what stands above the first has none.

    A heading with nothing but deeper headings below it opens the first of these.
    """
    headings = list(_headings(text))
    path: list[_Heading] = []
    begun = headings[0].start if headings else len(text)
    yield 0, begun, None
    for one, following in zip_longest(headings, headings[1:]):
        path = [*(above for above in path if above.level < one.level), one]
        end = len(text) if following is None else following.start
        empty = not text[one.body : end].strip()
        if empty and following is not None and following.level > one.level:
            continue
        titles = (above.title for above in path if above.title)
        yield begun, end, BETWEEN_HEADINGS.join(titles) or None
        begun = end


def _headings(text: str) -> Iterator[_Heading]:
    """Markdown headings, with # and underlined; none are found in fenced code.

    An underlined heading is one line with nothing above it, so that a rule below a
    paragraph, or the front matter of a page, makes none.
    """
    fence: str | None = None
    alone = True
    above: tuple[int, str] | None = None
    for start, line in _lines(text):
        body = min(start + len(line) + 1, len(text))
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


def _lines(text: str) -> Iterable[tuple[int, str]]:
    start = 0
    for line in text.split("\n"):
        yield start, line
        start += len(line) + 1


def _title(text: str) -> str:
    """A heading's words, without the # that may close it."""
    title = text.strip()
    bare = title.rstrip("#")
    if not bare or bare[-1].isspace():
        title = bare.rstrip()
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}\u2026"
