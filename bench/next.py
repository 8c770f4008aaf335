"""How many judgments ``karat next`` needs against random order, on Cranfield; writes NEXT.md.

    python bench/next.py [CRANFIELD] [--seeds 50]     about half an hour

Cranfield's judgments are taken as complete, hidden, and revealed one by one. Ends with 1 when
``next`` needs more than half of what random order does.
"""

import argparse
import re
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from results import machine, table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "judging"))

from next_rounds import Hidden  # noqa: E402

from karat.data.tables import Corpus, Gold, Queries, Run  # noqa: E402
from karat.formats.settings import Place  # noqa: E402
from karat.measure.conventions import conventions_of  # noqa: E402
from karat.measure.names import parse_measure  # noqa: E402
from karat.measure.prepare import prepare  # noqa: E402
from karat.measure.score_builder import score  # noqa: E402
from karat.retrieve.build_context import BuildContext  # noqa: E402
from karat.retrieve.system_config import parse_systems  # noqa: E402

DATA = HERE.parent / ".." / "shared" / "data" / "cranfield"
OUT = HERE / "NEXT.md"
DEPTH = 10
WORDS = {"retriever": "bm25", "stemmer": "english", "stopwords": "english"}
SYSTEMS = {
    "bm25": WORDS,
    "plain": {"retriever": "bm25"},
    "flat": WORDS | {"b": 0.0, "k1": 0.4},
    "steep": WORDS | {"b": 1.0, "k1": 3.0},
    "bow": {"retriever": "bow"},
    "fused": {"retriever": "fuse", "of": ["bm25", "bow"]},
}
ABOUT = {
    "bm25": "BM25, English stems and stop words",
    "plain": "BM25 on the words as they are",
    "flat": "bm25 with b = 0, k1 = 0.4",
    "steep": "bm25 with b = 1, k1 = 3",
    "bow": "counted words by cosine",
    "fused": "bm25 and bow by reciprocal rank",
    "titles": "bm25 over titles alone",
}
INTRO = """\
Written by `python bench/next.py` on {day}, never by hand.

Cranfield's judgments are taken as complete: what they do not list is not relevant. \
All are hidden. Judgments of the pairs that either of two systems has in its top {depth} are \
revealed one by one, once in the order of `karat next` (20 at a time, each round knowing those \
before) and in {seeds} random orders of the same pairs. What is not revealed counts as not \
relevant. nDCG@10, with grades from 4 (a complete answer) to 0; a verdict is decided at p < 0.05 \
of the randomisation test.

Nothing in `karat next` is random, so a pair of systems has one order of it; the {seeds} seeds \
vary random order alone. How `next` orders pairs was chosen on this collection, so on another it \
may do less well.

- **reached**: after how many judgments the verdict is the one that all judgments give, and stays.
- **settled**: after how many no labels of the rest could change it, whatever they are.
- Machine: {machine}
"""

AFTERWARDS = """\
A ratio in the table is that of the medians. Where systems \
are far apart, any order finds out soon; where they are close, most judgments are needed for a \
verdict that stays. Bounds are of the worst case, so that a verdict is settled long after it is \
reached.

## Where all judgments leave it undecided

How often better or worse is said on the way, looked at after every 20 judgments, though all \
judgments say neither (random: the mean of 20 orders). All judgments are those of the pool, the \
pairs that either system returns, since nothing else is ever asked for. Relevant items that \
neither returns make a better ideal list, and may decide what the pool leaves open; under all \
judgments of Cranfield {beyond}.
"""


def records(text: str) -> list[dict[str, str]]:
    found = []
    for record in re.split(r"^\.I ", text, flags=re.MULTILINE)[1:]:
        number, *fields = re.split(r"^\.([TABW])$", record, flags=re.MULTILINE)
        pairs = zip(fields[::2], fields[1::2], strict=True)
        found.append({"I": number.strip()} | {key: " ".join(to.split()) for key, to in pairs})
    return found


def cranfield(folder: Path) -> tuple[dict, dict[str, str], dict[tuple[str, str], float]]:
    """Corpus, queries by their place, and grades: 1 is the best code and becomes 4."""
    documents = records((folder / "cran.all.1400").read_text())
    corpus = {one["I"]: {"title": one["T"], "text": one["W"]} for one in documents}
    asked = records((folder / "cran.qry").read_text())
    queries = {str(place): one["W"] for place, one in enumerate(asked, 1)}
    grades = {}
    for line in (folder / "cranqrel").read_text().splitlines():
        query, item, code = line.split()
        if 0 < int(code) < 5:
            grades[query, item] = 5.0 - int(code)
    return corpus, queries, grades


def searched(corpus: dict, queries: dict[str, str]) -> dict[str, Run]:
    asked = Queries.from_dict(queries)
    system_configs = parse_systems(SYSTEMS, Place("karat.yaml"))
    titles = {name: {"text": one["title"] or one["text"]} for name, one in corpus.items()}
    runs = {}
    for name in ABOUT:
        table_ = Corpus.from_dict(titles if name == "titles" else corpus)
        system_config = system_configs["bm25" if name == "titles" else name]
        system = BuildContext(corpus=lambda table_=table_: table_).build(system_config)
        runs[name] = system.search(asked, DEPTH).at("final")
    return runs


def wrong_share(hidden: Hidden, order: list[int]) -> float:
    """How often a verdict is given on the way that all judgments do not give."""
    return float((hidden.verdicts(hidden.differences(order)[::20]) != hidden.final).mean())


def decided(name: str, hidden: Hidden, seeds: int) -> dict:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(hidden.pairs)).tolist() for _ in range(seeds)]
    own = hidden.by_next()
    random = [hidden.reached(order) for order in orders]
    row = {
        "name": name,
        "pairs": len(hidden.pairs),
        "final": {1: "better", -1: "worse"}[hidden.final],
        "random": random,
        "next": hidden.reached(own),
        "settled": hidden.settled(own),
        "settled_random": [hidden.settled(order) for order in orders[:3]],
    }
    print(name, len(hidden.pairs), np.median(random), row["next"], row["settled"], flush=True)
    return row


def undecided(name: str, hidden: Hidden, seeds: int) -> tuple[str, ...]:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(hidden.pairs)).tolist() for _ in range(min(seeds, 20))]
    random = np.mean([wrong_share(hidden, order) for order in orders])
    own = wrong_share(hidden, hidden.by_next())
    print(name, "undecided", random, own, flush=True)
    return name, f"{len(hidden.pairs):,}", f"{random:.0%}", f"{own:.0%}"


def on_everything(hidden: Hidden) -> int:
    """The verdict on all judgments there are, not only those of what either system returns."""
    frame = [(query, item, grade) for (query, item), grade in hidden.grades.items()]
    names = ["query_id", "item_id", "grade"]
    gold = Gold.from_frame(
        pl.DataFrame(frame, schema=names, orient="row"), query_ids=hidden.query_ids
    )
    prepared = prepare(gold, conventions_of("karat", {"empty_gold": "zero"}))
    measure = [parse_measure(hidden.measure)]
    first, second = (
        score(run, prepared, measure).values(hidden.measure)
        for run in (hidden.first, hidden.second)
    )
    return int(hidden.verdicts((second - first)[None])[0])


def beyond_the_pool(verdicts: dict[str, int]) -> str:
    """Which of the pairs that the pool leaves undecided all judgments decide."""
    words = {1: "better", -1: "worse"}
    decided_ = [f"{name} ({words[one]})" for name, one in verdicts.items() if one]
    if not decided_:
        return "none of these is decided"
    return f"{' and '.join(decided_)} {'is' if len(decided_) == 1 else 'are'} decided"


def shown(rows: list[dict]) -> list[tuple[str, ...]]:
    return [
        (
            row["name"],
            row["final"],
            f"{row['pairs']:,}",
            "{:,.0f} ({:,.0f} to {:,.0f})".format(*np.percentile(row["random"], (50, 25, 75))),
            f"{row['next']:,}",
            f"{row['next'] / np.median(row['random']):.2f}",
            f"{np.median(row['settled_random']):,.0f}",
            f"{row['settled']:,}",
        )
        for row in rows
    ]


def document(
    rows: list[dict], others: list[tuple[str, ...]], everything: dict[str, int], seeds: int
) -> tuple[str, float]:
    ratios = [row["next"] / np.median(row["random"]) for row in rows]
    each = [row["next"] / max(one, 1) for row in rows for one in row["random"]]
    ratio = float(np.median(each))
    heads = ["system against baseline", "verdict", "pairs", "random: reached (quartiles)"]
    heads += ["next: reached", "ratio", "random: settled", "next: settled"]
    met = "pass" if ratio <= 0.5 else "FAIL"
    intro = INTRO.format(day=time.strftime("%Y-%m-%d"), depth=DEPTH, seeds=seeds, machine=machine())
    below = sum(one <= 0.5 for one in ratios)
    headline = (
        f"**The median of all ratios, {len(each):,} of them, is {ratio:.2f}** (asked: at most"
        f" 0.50): {met}. {below} of {len(rows)} pairs of systems are at or below 0.50.\n"
    )
    parts = ["# What to judge next, against random order\n", intro, headline]
    parts += [table(heads, shown(rows)) + "\n"]
    parts += [AFTERWARDS.format(beyond=beyond_the_pool(everything))]
    parts += [table(["system against baseline", "pairs", "random", "next"], others) + "\n"]
    parts += ["## The systems\n", "\n".join(f"- {one}: {told}" for one, told in ABOUT.items())]
    return "\n".join(parts) + "\n", ratio


def main() -> int:
    parser = argparse.ArgumentParser(description="karat next against random order, on Cranfield")
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=50)
    given = parser.parse_args()
    if not given.data.is_dir():
        print(f"{given.data}: no such folder; give the one of Cranfield", file=sys.stderr)
        return 2
    corpus, queries, grades = cranfield(given.data)
    runs = searched(corpus, queries)
    rows, others, everything = [], [], {}
    for first, second in combinations(runs, 2):
        hidden = Hidden(runs[first], runs[second], tuple(queries), grades)
        name = f"{second} against {first}"
        if hidden.final:
            rows.append(decided(name, hidden, given.seeds))
        else:
            others.append(undecided(name, hidden, given.seeds))
            everything[name] = on_everything(hidden)
    text, ratio = document(rows, others, everything, given.seeds)
    OUT.write_text(text)
    return 0 if ratio <= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
