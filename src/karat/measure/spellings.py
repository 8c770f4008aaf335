"""Find the spelling difference between two sets of ids that share none.

Works on ids alone. Whether the difference stops an evaluation is decided in ``misfits``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

# Affixes are looked for in so many ids of the longer side.
_SAMPLE = 20_000
_LONGEST_ID = 500
# An affix that ends in the middle of a word or number needs so many pairs to be believed.
_PAIRS = 3
# So many ids of a side have the affix, or it is none of that side.
_SHARE = 0.9


@dataclass(frozen=True)
class Spelling:
    """A difference in words (``the prefix "doc_"``) and ids of both sides that it pairs."""

    difference: str
    pairs: tuple[tuple[str, str], ...]


# What is the same id in another writing, whichever side is written so.
_VARIANTS: Mapping[str, pl.Expr] = {
    "white space around them": pl.col("id").str.strip_chars(),
    "quotation marks around them": pl.col("id").str.strip_chars("\"'"),
    "upper and lower case": pl.col("id").str.to_lowercase(),
    "zero padding": pl.col("id").str.replace_all(r"(^|[^0-9])0+([0-9])", "${1}${2}"),
    "a trailing .0": pl.col("id").str.replace(r"^([0-9]+)\.0+$", "${1}"),
    "their Unicode form": pl.col("id").str.normalize("NFC"),
    "hyphens, underscores and spaces": pl.col("id").str.replace_all(r"[ _]", "-"),
}
# What one side has and the other has not.
_ADDITIONS: Mapping[str, pl.Expr] = {
    "a file extension": pl.col("id").str.replace(r"\.[A-Za-z][A-Za-z0-9]{0,4}$", ""),
    "a path": pl.col("id").str.replace(r"^.*[/\\]", ""),
    "a path and a file extension": pl.col("id")
    .str.replace(r"^.*[/\\]", "")
    .str.replace(r"\.[A-Za-z][A-Za-z0-9]{0,4}$", ""),
}


def spelling_difference(ours: pl.Series, theirs: pl.Series) -> Spelling | None:
    """Return the difference that makes ids of two sides the same; None where there is none.

    >>> gold = pl.Series(["doc_tax-02", "doc_tax-07"])
    >>> spelling_difference(gold, pl.Series(["tax-02", "tax-11"]))
    Spelling(difference='the prefix "doc_"', pairs=(('doc_tax-02', 'tax-02'),))
    """
    left, right = _table(ours), _table(theirs)
    plain = [_written(side, list(_VARIANTS)) for side in (left, right)]
    if pairs := _pairs(*plain):
        return Spelling(" and ".join(_needed(left, right)), pairs)
    found = _affix(left, right) or _addition(left, right)
    if found is not None:
        return found
    found = _affix(*plain) or _addition(*plain)
    return None if found is None else _with_variants(left, right, found)


def swapped_prefixes(ours: pl.Series, theirs: pl.Series) -> Spelling | None:
    """Return the prefixes that differ where both sides have one, as in doc_1 and chunk_1.

    Two sets of different items may be numbered so too: this explains, and proves nothing.
    """
    prefixes = [_shared_start(side) for side in (ours, theirs)]
    if not all(prefixes) or prefixes[0] == prefixes[1]:
        return None
    tables = [
        _table(side).with_columns(key=pl.col("id").str.slice(len(prefix)))
        for side, prefix in zip((ours, theirs), prefixes, strict=True)
    ]
    pairs = _pairs(*tables)
    difference = f"their prefixes: {_quoted(prefixes[0])} and {_quoted(prefixes[1])}"
    return Spelling(difference, pairs) if pairs else None


def _table(ids: pl.Series) -> pl.DataFrame:
    table = pl.DataFrame({"id": ids.unique().sort()})
    return table.filter(pl.col("id").str.len_chars() <= _LONGEST_ID).with_columns(key="id")


def _written(table: pl.DataFrame, variants: Sequence[str]) -> pl.DataFrame:
    """Return the table with each id's key in the plainest writing of all variants."""
    names = table["id"]
    for name in variants:
        table = table.with_columns(id="key").with_columns(key=_VARIANTS[name])
    return table.with_columns(id=names)


def _pairs(one: pl.DataFrame, other: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Return two ids of each side that have the same key."""
    both = one.join(other, on="key", maintain_order="left").filter(pl.col("key") != "")
    return tuple(both.select("id", "id_right").unique("id", maintain_order=True).head(2).rows())


def _needed(left: pl.DataFrame, right: pl.DataFrame) -> list[str]:
    """Return the variants without which no id would be the same."""
    needed = list(_VARIANTS)
    for name in _VARIANTS:
        fewer = [one for one in needed if one != name]
        if _pairs(_written(left, fewer), _written(right, fewer)):
            needed = fewer
    return needed


def _with_variants(left: pl.DataFrame, right: pl.DataFrame, found: Spelling) -> Spelling:
    """Return the same difference with the variants that it needs beside it."""
    needed = list(_VARIANTS)
    for name in _VARIANTS:
        fewer = [one for one in needed if one != name]
        one, other = _written(left, fewer), _written(right, fewer)
        again = _affix(one, other) or _addition(one, other)
        if again is not None:
            needed, found = fewer, again
    return replace(found, difference=" and ".join([found.difference, *needed]))


def _addition(one: pl.DataFrame, other: pl.DataFrame) -> Spelling | None:
    """Return a path or file extension that one side has."""
    for difference, expression in _ADDITIONS.items():
        for mine, yours in ((True, False), (False, True)):
            left, right = (
                table.with_columns(key=_on_key(expression, table)) if changed else table
                for table, changed in ((one, mine), (other, yours))
            )
            if pairs := _pairs(left, right):
                return Spelling(difference, pairs)
    return None


def _on_key(expression: pl.Expr, table: pl.DataFrame) -> pl.Series:
    return table.select(id="key").select(expression).to_series()


def _affix(one: pl.DataFrame, other: pl.DataFrame) -> Spelling | None:
    """Return a prefix or suffix that the ids of one side share and the other side lacks."""
    for end in ("prefix", "suffix"):
        for longer, shorter, turned in ((one, other, False), (other, one, True)):
            found = _shared_affix(longer, shorter, end)
            if found is not None:
                affix, pairs = found
                told = tuple((b, a) if turned else (a, b) for a, b in pairs)
                return Spelling(f"the {end} {_quoted(affix)}", told)
    return None


def _shared_affix(
    longer: pl.DataFrame, shorter: pl.DataFrame, end: str
) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the affix that turns most ids of one side into ids of the other, with pairs."""
    known = dict(zip(shorter["key"].to_list(), shorter["id"].to_list(), strict=True))
    step = -(-longer.height // _SAMPLE) or 1
    sample = longer.gather_every(step)
    pairs: dict[str, list[tuple[str, str]]] = {}
    clean: dict[str, bool] = {}
    for name, key in sample.iter_rows():
        for affix, rest in _cuts(key, end):
            if rest in known:
                pairs.setdefault(affix, []).append((name, known[rest]))
                clean[affix] = clean.get(affix, False) or _is_clean(affix, rest, end)
    has_affix = pl.col("key").str.starts_with if end == "prefix" else pl.col("key").str.ends_with
    # Most pairs first; of equals the shortest, which leaves the most of each id.
    for affix in sorted(pairs, key=lambda one: (-len(pairs[one]), len(one), one)):
        # Digits that continue a number make another number: d10 is not d1 with the suffix 0.
        believed = clean[affix] or (len(pairs[affix]) >= _PAIRS and not affix.isdigit())
        if believed and sample.select(has_affix(affix).mean()).item() >= _SHARE:
            return affix, pairs[affix][:2]
    return None


def _cuts(key: str, end: str) -> Iterator[tuple[str, str]]:
    """Return every way to take an affix off an id."""
    for at in range(1, len(key)):
        yield (key[:at], key[at:]) if end == "prefix" else (key[at:], key[:at])


def _is_clean(affix: str, rest: str, end: str) -> bool:
    """Return whether the cut lies between words or numbers, and not inside one."""
    inner, outer = (affix[-1], rest[:1]) if end == "prefix" else (affix[0], rest[-1:])
    return not inner.isalnum() or not outer.isalnum() or inner.isdigit() != outer.isdigit()


def _shared_start(ids: pl.Series) -> str:
    """Return what all ids begin with, cut back to where a word or number ends."""
    low, high = ids.min(), ids.max()
    start = ""
    for a, b in zip(str(low), str(high), strict=False):
        if a != b:
            break
        start += a
    return start.rstrip("0123456789")


def _quoted(text: str) -> str:
    return f'"{text}"'
