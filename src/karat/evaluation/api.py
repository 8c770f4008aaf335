"""``karat.evaluate``, ``karat.compare`` and ``karat.gate``: one result from new inputs.

For several results from the same inputs, build an ``Evaluation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from karat.data.tables import Run
from karat.errors import UsageError
from karat.evaluation.evaluation import MIXTURE, NO_LISTS, Evaluation
from karat.evaluation.inputs import queries_of
from karat.evaluation.segments import By
from karat.evaluation.systems import compared_systems
from karat.evaluation.verdict import Rule, rule_from
from karat.formats.field_mapping import Fields
from karat.measure.names import Measure
from karat.measure.scores import Scores

if TYPE_CHECKING:
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.gate_files import Gates
    from karat.evaluation.gates import Gating


def evaluate(
    run: Any,
    gold: Any,
    measures: str | Sequence[str | Measure] | None = None,
    *,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Any = None,
    corpus: Any = None,
    fields: Mapping[str, str] | None = None,
) -> Scores:
    """Score a run against gold; without ``measures`` by those of the profile.

    ``settings`` changes conventions of the profile, as ``--set`` does. ``queries`` defines the
    queries with their k, as_of and entities; ``corpus`` provides texts, versions and documents
    for measures that need them. Inputs are as in ``Evaluation``.

    >>> evaluate({"q1": ["X", "A", "Y"]}, {"q1": {"A": 1, "B": 1}}, ["R@5", "RR"]).means()
    {'R@5': 0.5, 'RR': 0.5}
    """
    evaluation = Evaluation(
        gold,
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=settings,
        measures=measures,
        fields=fields,
    )
    return evaluation.score(run, keep=0)


def compare(
    runs: Mapping[str, Any] | Sequence[Any],
    gold: Any = None,
    measures: str | Sequence[str] | None = None,
    *,
    rule: Rule | None = None,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Any = None,
    corpus: Any = None,
    fields: Mapping[str, str] | None = None,
    by: Iterable[str] = (),
    replicates: bool = False,
    bounds: bool = False,
    strict_bounds: bool = False,
    **decided_by: Any,
) -> Comparisons:
    """Compare systems with the first of them, measure by measure, on the same queries.

    Takes runs and their gold, or scores made before; a mapping names the systems. The decision
    follows a ``Rule``, or its parts by name: ``primary`` (the profile's unless named), ``margin``,
    ``pairs="all"`` … With ``replicates`` runs of the same name are repeated runs of one system.
    ``bounds`` adds the range of every difference over all judgments of unjudged items, and
    ``strict_bounds`` decides only what holds in the whole range. Inputs are as in ``Evaluation``.

    >>> gold = {f"q{i}": ["a"] for i in range(8)}
    >>> old, new = ({f"q{i}": items for i in range(8)} for items in (["x", "a"], ["a", "x"]))
    >>> comparisons = compare({"old": old, "new": new}, gold, ["RR"])
    >>> comparisons.verdict, comparisons.of("new").delta, comparisons.of("new").p
    ('better', 0.5, 0.0078125)
    """
    rule = rule_from(rule, decided_by)
    names = list(runs) if isinstance(runs, Mapping) else None
    systems = list(runs.values()) if isinstance(runs, Mapping) else runs
    if isinstance(systems, str | Run) or len(systems) < 2:
        raise UsageError("a comparison needs at least two runs: the baseline and another")
    if gold is not None:
        evaluation = Evaluation(
            gold,
            queries=queries,
            corpus=corpus,
            profile=profile,
            settings=settings,
            measures=measures or None,
            primary=rule.primary,
            fields=fields,
            by=by,
        )
        return evaluation.compare(
            *systems,
            rule=rule,
            names=names,
            replicates=replicates,
            bounds=bounds,
            strict_bounds=strict_bounds,
        )
    if not all(isinstance(system, Scores) for system in systems):
        raise UsageError(MIXTURE)
    if bounds or strict_bounds:
        raise UsageError(NO_LISTS)
    from karat.evaluation.comparison import compare_scores

    table = queries_of(queries, None, gold_format=None, fields=Fields.of(fields))
    compared = compared_systems(systems, replicates=replicates, names=names)
    return compare_scores(compared, rule, queries=table, by=[By.parse(column) for column in by])


def gate(
    measured: Any,
    gates: Gates,
    *,
    gold: Any = None,
    queries: Any = None,
    corpus: Any = None,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    fields: Mapping[str, str] | None = None,
) -> Gating:
    """Compare a run, which needs its ``gold``, or scores made before, with gates.

    ``gates`` is a line such as ``R@5 >= 0.9``, a mapping, several of them, or the name of a gate
    file. The queries say which segment each belongs to. Inputs are as in ``Evaluation``.

    >>> gold = {f"q{n}": ["a"] for n in range(40)}
    >>> gate({f"q{n}": ["a"] for n in range(40)}, "Hit@1 >= 0.9", gold=gold).verdict
    'pass'
    """
    if isinstance(measured, Scores):
        from karat.evaluation.gate_files import gates_of
        from karat.evaluation.gates import judge

        table = queries_of(queries, gold, gold_format=None, fields=Fields.of(fields))
        read = gates_of(gates, measured.conventions)
        return judge(read.gates, measured, table, system=measured.system, left_out=read.left_out)
    if gold is None:
        raise UsageError(
            "a run needs gold to be compared with gates; give gold=, or scores such as"
            " karat.evaluate returns"
        )
    evaluation = Evaluation(
        gold,
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=settings,
        measures=(),
        gates=gates,
        fields=fields,
    )
    return evaluation.gate(evaluation.score(measured, keep=0))
