"""The spelling difference between two sets of ids that share none: a prefix, case, padding …"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

# Affixes are looked for in so many ids of the longer side.
_SAMPLE = 20_000
_LONGEST_ID = 500
# An affix that ends in the middle of a word or number needs so many pairs to be believed.
_PAIRS = 3
# The share of a side's ids that must have the affix.
_SHARE = 0.9


@dataclass(frozen=True)
class Spelling:
    """A difference in words (``the prefix "doc_"``) and ids of both sides that it pairs."""

    difference: str
    pairs: tuple[tuple[str, str], ...]


# Spellings of the same id, on either side.
_KEY = pl.col("key")
_VARIANTS: Mapping[str, pl.Expr] = {
    "white space around them": _KEY.str.strip_chars(),
    "quotation marks around them": _KEY.str.strip_chars("\"'"),
    "upper and lower case": _KEY.str.to_lowercase(),
    "zero padding": _KEY.str.replace_all(r"(^|[^0-9])0+([0-9])", "${1}${2}"),
    "a trailing .0": _KEY.str.replace(r"^([0-9]+)\.0+$", "${1}"),
    "their Unicode form": _KEY.str.normalize("NFC"),
    "hyphens, underscores and spaces": _KEY.str.replace_all(r"[ _]", "-"),
}
# Parts that only one side has.
_WITHOUT_PATH = _KEY.str.replace(r"^.*[/\\]", "")
_EXTENSION = r"\.[A-Za-z][A-Za-z0-9]{0,4}$"
_ADDITIONS: Mapping[str, pl.Expr] = {
    "a file extension": _KEY.str.replace(_EXTENSION, ""),
    "a path": _WITHOUT_PATH,
    "a path and a file extension": _WITHOUT_PATH.str.replace(_EXTENSION, ""),
}


def spelling_difference(gold: pl.Series, other: pl.Series) -> Spelling | None:
    """Return the difference that makes ids of two sides the same; None where there is none.

    >>> gold = pl.Series(["doc_tax-02", "doc_tax-07"])
    >>> spelling_difference(gold, pl.Series(["tax-02", "tax-11"]))
    Spelling(difference='the prefix "doc_"', pairs=(('doc_tax-02', 'tax-02'),))
    """
    sides = _table(gold), _table(other)
    return _with_variants(*sides, _same) or _added(*sides) or _with_variants(*sides, _added)


def _table(ids: pl.Series) -> pl.DataFrame:
    table = pl.DataFrame({"id": ids.unique().sort()})
    return table.filter(pl.col("id").str.len_chars() <= _LONGEST_ID).with_columns(key="id")


def _pairs(left: pl.DataFrame, right: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Return two ids of each side that have the same key."""
    both = left.join(right, on="key", maintain_order="left").filter(_KEY != "")
    return tuple(both.select("id", "id_right").unique("id", maintain_order=True).head(2).rows())


def _same(left: pl.DataFrame, right: pl.DataFrame) -> Spelling | None:
    pairs = _pairs(left, right)
    return Spelling("", pairs) if pairs else None


def _with_variants(
    left: pl.DataFrame,
    right: pl.DataFrame,
    match: Callable[[pl.DataFrame, pl.DataFrame], Spelling | None],
) -> Spelling | None:
    """Return a match in the plainest spelling, with the variants that it needs."""

    def matched(variants: Sequence[str]) -> Spelling | None:
        written = []
        for table in (left, right):
            for name in variants:
                table = table.with_columns(key=_VARIANTS[name])
            written.append(table)
        return match(*written)

    needed = list(_VARIANTS)
    spelling = matched(needed)
    if spelling is None:
        return None
    for name in _VARIANTS:
        fewer = [variant for variant in needed if variant != name]
        if (with_fewer := matched(fewer)) is not None:
            needed, spelling = fewer, with_fewer
    return replace(spelling, difference=" and ".join(filter(None, [spelling.difference, *needed])))


def _added(left: pl.DataFrame, right: pl.DataFrame) -> Spelling | None:
    """Return a prefix, suffix, path or file extension that one side has and the other lacks."""
    for end, step in (("prefix", 1), ("suffix", -1)):
        for longer, shorter in ((left, right), (right, left)):
            if (match := _shared_affix(longer, shorter, step)) is not None:
                affix, pairs = match
                turned = longer is right
                pairs = [(b, a) if turned else (a, b) for a, b in pairs]
                return Spelling(f'the {end} "{affix}"', tuple(pairs))
    for difference, expression in _ADDITIONS.items():
        pairs_of_sides = _pairs(left.with_columns(key=expression), right) or _pairs(
            left, right.with_columns(key=expression)
        )
        if pairs_of_sides:
            return Spelling(difference, pairs_of_sides)
    return None


def _shared_affix(
    longer: pl.DataFrame, shorter: pl.DataFrame, step: int
) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the affix that turns most ids of one side into ids of the other, with pairs.

    It is a prefix of the keys read forwards (``step`` 1), or backwards (-1) for a suffix.
    """
    names_by_key = {key[::step]: name for name, key in shorter.iter_rows()}
    sample = longer.gather_every(-(-longer.height // _SAMPLE) or 1).rows()
    pairs: dict[str, list[tuple[str, str]]] = {}
    between_words = set()
    for name, key in sample:
        for at in range(1, len(key)):
            affix, base = key[::step][:at], key[::step][at:]
            if base in names_by_key:
                pairs.setdefault(affix, []).append((name, names_by_key[base]))
                inner, outer = affix[-1], base[0]
                letters = inner.isalnum() and outer.isalnum()
                if not letters or inner.isdigit() != outer.isdigit():
                    between_words.add(affix)
    # Most pairs first; of equals the shortest, which leaves the most of each id.
    for affix in sorted(pairs, key=lambda affix: (-len(pairs[affix]), len(affix), affix)):
        # Digits that continue a number make another number: d10 is not d1 with the suffix 0.
        if affix in between_words or (len(pairs[affix]) >= _PAIRS and not affix.isdigit()):
            sharing = sum(key[::step].startswith(affix) for _, key in sample)
            if sharing >= _SHARE * len(sample):
                return affix[::step], pairs[affix][:2]
    return None
