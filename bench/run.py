"""Compare karat's speed with its peers and write bench/RESULTS.md.

    python bench/run.py              everything, about fifteen minutes, 4 GB of disk for a while
    python bench/run.py --quick      without the file of 70 million rows
    python bench/run.py --only small --scale 10
                                     some cases, a tenth of the queries, to try the bench itself

trec_eval in C races too if it is on the PATH, or if TREC_EVAL names the program or a folder with
its source, which is then built with -O3 in a temporary folder.

RESULTS.md comes from whole runs only; partial ones go to bench/data/partial.md unless --out
says otherwise. Ends with 1 when a target is missed, and stops at once when karat and a peer
disagree: a race between different answers is none.
"""

import argparse
from pathlib import Path

from cases import COMPUTED, RACES, Data, warm
from contenders import HERE, trec_eval_program
from results import document, finish, machine

CASES = ("start", *RACES, "memory", "decide")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="skip the largest file")
    parser.add_argument("--only", action="append", choices=CASES, help="this case; repeatable")
    parser.add_argument("--scale", type=int, default=1, help="divide the number of queries")
    parser.add_argument("--out", type=Path, help="where to write the results")
    args = parser.parse_args()
    partial = args.quick or args.only or args.scale != 1
    out = args.out or (HERE / "data" / "partial.md" if partial else HERE / "RESULTS.md")
    names = args.only or [name for name in CASES if not (args.quick and name == "huge")]

    trec_eval_program()  # a wrong TREC_EVAL is said before anything is generated
    data, computer = Data(args.scale), machine()
    warm(data)
    sections = [
        RACES[name](data).section() if name in RACES else COMPUTED[name](data) for name in names
    ]
    how = "`make bench`" if not partial else "a part of `make bench`"
    if args.scale != 1:
        how += f" with a {args.scale}th of the queries, for which the targets are not meant,"
    finish(sections, document(sections, computer, how), out)


if __name__ == "__main__":
    main()
