"""What bench/load.py measured, as the tables of bench/LOAD.md."""

import os
from collections.abc import Sequence
from typing import Any

from results import Section, Target

WRITES = ("POST judgment", "POST judgment again", "POST undo")
# Until then memory is what is loaded when it is first needed, and what many threads part it into.
SETTLED = 1 / 2


def sections(both: Sequence[Any], clients: int) -> list[Section]:
    """Everything, store by store."""
    return [
        _summary(both, clients),
        *(_latencies(one.kind, one.busy, f"{clients} clients without a pause") for one in both),
        *(
            _latencies(one.kind, one.calm, f"{clients} clients who think in between")
            for one in both
        ),
        *(_latencies(one.kind, one.still, f"{clients} clients who only read") for one in both),
        _ended(both),
    ]


def _summary(both: Sequence[Any], clients: int) -> Section:
    sqlite, postgresql = both
    rows = [
        (name, show(of(sqlite)), show(of(postgresql)), f"{of(postgresql) / of(sqlite):.2f}")
        for name, of, show in (
            ("seconds", lambda one: one.busy.found["seconds"], "{:.0f}".format),
            ("requests", lambda one: requests(one.busy), "{:,.0f}".format),
            ("requests/s", rate, "{:.1f}".format),
            ("writes kept/s", kept, "{:.1f}".format),
            ("p50 ms, all requests", lambda one: quantile(one.busy, 0.5), "{:.0f}".format),
            ("p99 ms, all requests", lambda one: quantile(one.busy, 0.99), "{:.0f}".format),
            ("p99 ms, clients who think", lambda one: quantile(one.calm, 0.99), "{:.0f}".format),
            ("processors used, server", lambda one: one.busy.cpu, "{:.2f}".format),
            ("processors used, clients", client_cpu, "{:.2f}".format),
            ("server MB at the start", lambda one: one.busy.memory[0][1], "{:.0f}".format),
            ("server MB at the end", lambda one: one.busy.memory[-1][1], "{:.0f}".format),
            ("server MB after readers", lambda one: one.still.memory[-1][1], "{:.0f}".format),
        )
    ]
    late = [one.busy.found["late_typical_ms"] for one in both]
    return Section(
        f"{clients} clients at once: SQLite and PostgreSQL",
        ["", "SQLite", "PostgreSQL", "ratio"],
        rows,
        note=(
            f"Writes are {share(both):.0%} of all requests. The clients' own event loop was"
            f" {max(late):.1f} ms late in the median, and the machine's load was"
            f" {os.getloadavg()[2]:.1f} over the last 15 minutes. Memory in the second half, in"
            f" MB a minute: {slope(sqlite.busy):+.2f} on SQLite and"
            f" {slope(postgresql.busy):+.2f} on PostgreSQL while judgments are added,"
            f" {slope(sqlite.still):+.2f} and {slope(postgresql.still):+.2f} while they are read."
            f" Beside the clients:"
            f" {sqlite.imported + postgresql.imported} judgments imported by another process."
        ),
        targets=[target for one in both for target in _targets(one)],
    )


def _targets(one: Any) -> list[Target]:
    rounds = (one.busy, one.calm, one.still)
    failures = sum(len(each.found["failures"]) for each in rounds)
    wrong = sum(len(each.wrong) for each in rounds) + len(one.lost)
    return [
        Target.at_most(f"{one.kind}: errors", 0, failures, "errors"),
        Target.at_most(f"{one.kind}: lost, doubled or changed", 0, wrong, "judgments"),
        Target.at_most(f"{one.kind}: memory of readers grows", 2, slope(one.still), "MB a minute"),
        Target.at_most(f"{one.kind}: ends under load", 10, one.ended.seconds, "s"),
    ]


def _latencies(kind: str, found: Any, how: str) -> Section:
    times = found.found["times"]
    rows = [
        (name, f"{len(own):,}", *(f"{1e3 * at(own, share):,.0f}" for share in (0.5, 0.95, 0.99, 1)))
        for name, own in sorted(times.items())
    ]
    return Section(
        f"{kind}: {how}",
        ["", "requests", "p50 ms", "p95 ms", "p99 ms", "slowest ms"],
        rows,
        note=(
            f"{requests(found):,} requests in {found.found['seconds']:.0f} s,"
            f" {requests(found) / found.found['seconds']:.1f} a second;"
            f" errors: {len(found.found['failures'])}."
        ),
    )


def _ended(both: Sequence[Any]) -> Section:
    rows = [
        (
            one.kind,
            f"{one.ended.seconds:.2f}",
            str(one.ended.code),
            f"{sum(map(len, one.ended.found['said'].values())):,}",
            str(len(one.lost)),
        )
        for one in both
    ]
    return Section(
        "SIGTERM while all clients write",
        ["", "s until the end", "exit code", "writes answered before", "of them not as told"],
        rows,
        note="A write that was not answered is in the store once or not at all.",
    )


def requests(found: Any) -> int:
    return sum(map(len, found.found["times"].values()))


def rate(one: Any) -> float:
    return requests(one.busy) / one.busy.found["seconds"]


def kept(one: Any) -> float:
    return sum(map(len, one.busy.found["said"].values())) / one.busy.found["seconds"]


def client_cpu(one: Any) -> float:
    return one.busy.found["cpu"] / one.busy.found["seconds"]


def share(both: Sequence[Any]) -> float:
    written = sum(len(one.busy.found["times"].get(kind, [])) for one in both for kind in WRITES)
    return written / sum(requests(one.busy) for one in both)


def quantile(found: Any, share: float) -> float:
    return 1e3 * at([time for own in found.found["times"].values() for time in own], share)


def at(times: Sequence[float], share: float) -> float:
    """The smallest time that so large a share of all is not above."""
    ordered = sorted(times)
    return (
        ordered[max(0, -(-int(share * 100 * len(ordered)) // 100) - 1)]
        if share < 1
        else ordered[-1]
    )


def settled(found: Any) -> list[tuple[float, float]]:
    last = found.memory[-1][0]
    return [one for one in found.memory if one[0] >= SETTLED * last]


def slope(found: Any) -> float:
    """MB a minute by least squares, once everything is loaded that is ever loaded."""
    own = settled(found)
    middle = sum(second for second, _ in own) / len(own)
    mean = sum(size for _, size in own) / len(own)
    spread = sum((second - middle) ** 2 for second, _ in own)
    if not spread:
        return 0.0
    return 60 * sum((second - middle) * (size - mean) for second, size in own) / spread
