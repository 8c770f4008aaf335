"""Races karat against its peers and writes bench/RESULTS.md.

    python bench/run.py              everything, about ten minutes, 4 GB of disk for a while
    python bench/run.py --quick      without the file of 70 million rows
    python bench/run.py --only small --scale 10
                                     some cases, a tenth of the queries, to try the bench itself

RESULTS.md comes from whole runs only; partial ones go to bench/data/partial.md unless --out
says otherwise. Ends with 1 when a target is missed, and stops at once when karat and
pytrec_eval disagree: a race between different answers is none.
"""

import argparse
from pathlib import Path

from cases import CASES, Data, warm
from contenders import HERE
from results import document, machine


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

    data, computer = Data(args.scale), machine()
    warm(data)
    sections = [CASES[name](data) for name in names]
    how = "`make bench`" if not partial else "a part of `make bench`"
    if args.scale != 1:
        how += f" with a {args.scale}th of the queries, for which the targets are not meant,"
    text = document(sections, computer, how)
    out.parent.mkdir(exist_ok=True)
    out.write_text(text)
    print(text)
    missed = [target.what for section in sections for target in section.targets if not target.met]
    if missed:
        raise SystemExit("bench: not reached: " + "; ".join(missed))


if __name__ == "__main__":
    main()
