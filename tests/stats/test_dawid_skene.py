"""Dawid and Skene's model against crowd-kit and the truth."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest

from karat.errors import UsageError
from karat.stats.agreement import dawid_skene


def judged(seed: int, *, items: int = 40, grades: int = 3, skill=(0.9, 0.7, 0.6, 0.8), skip=0.2):
    """What is true, and who says what: rater r is right with a chance of ``skill[r]``."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, grades, items)
    rows = [
        (rater, item, truth[item] if rng.random() < right else rng.integers(0, grades))
        for item in range(items)
        for rater, right in enumerate(skill)
        if rng.random() >= skip
    ]
    raters, of, said = (np.array(column) for column in zip(*rows, strict=True))
    return truth, raters, of, said.astype(float)


def crowd_kits(raters, items, grades, **options):
    from crowdkit.aggregation.classification.dawid_skene import DawidSkene

    table = pd.DataFrame({"task": items, "worker": raters, "label": grades})
    with warnings.catch_warnings():
        # It is older than the pandas that runs it.
        warnings.simplefilter("ignore")
        return DawidSkene(**options).fit(table)


@pytest.mark.parametrize("grades", [2, 3, 5])
@pytest.mark.parametrize("iterations", [1, 12])
def test_every_iteration_is_crowd_kits(grades: int, iterations: int) -> None:
    _, raters, items, said = judged(grades, grades=grades)
    theirs = crowd_kits(raters, items, said, n_iter=iterations, tol=-math.inf)
    ours = dawid_skene(raters, items, said, iterations=iterations)
    order = ours.grades.tolist()
    assert ours.iterations == iterations == len(theirs.loss_history_)
    posterior = theirs.probas_.loc[ours.items, order].to_numpy()
    assert ours.posterior == pytest.approx(posterior, abs=1e-7)
    assert ours.prior == pytest.approx(theirs.priors_[order].to_numpy(), abs=1e-7)
    for (rater, given), rates in theirs.errors_.iterrows():
        place = order.index(given)
        found = ours.confusion[ours.raters.tolist().index(rater), :, place]
        assert found == pytest.approx(rates[order].to_numpy(), abs=1e-7)


def test_left_alone_it_ends_where_crowd_kit_ends() -> None:
    _, raters, items, said = judged(7, items=80)
    theirs = crowd_kits(raters, items, said, n_iter=60, tol=-math.inf)
    ours = dawid_skene(raters, items, said)
    assert ours.converged
    assert ours.posterior == pytest.approx(
        theirs.probas_.loc[ours.items, ours.grades].to_numpy(), abs=1e-3
    )
    assert ours.most_likely().tolist() == theirs.labels_.loc[ours.items].tolist()


def test_it_finds_who_is_right_where_the_majority_is_not() -> None:
    """Three good raters, eight who guess: most votes are noise, and the model knows whose."""
    skill = (0.95,) * 3 + (0,) * 8
    truth, raters, items, said = judged(3, items=600, grades=2, skill=skill, skip=0)
    found = dawid_skene(raters, items, said)
    votes = np.array([said[items == item].mean() > 0.5 for item in found.items])
    right, by_vote = np.mean(found.most_likely() == truth), np.mean(votes == truth)
    assert right > 0.95 > 0.88 > by_vote
    # A rater who is right 95 % of the time and else guesses is right on 97.5 % of each grade.
    assert found.confusion[:3, [0, 1], [0, 1]] == pytest.approx(0.975, abs=0.04)


def test_rows_are_probabilities_and_sure_of_what_all_agree_on() -> None:
    _, raters, items, said = judged(5)
    found = dawid_skene(raters, items, said)
    assert found.posterior.sum(axis=1) == pytest.approx(1)
    assert found.prior.sum() == pytest.approx(1)
    assert found.confusion.sum(axis=2) == pytest.approx(1)


def test_the_order_of_judgments_changes_no_bit() -> None:
    _, raters, items, said = judged(6)
    order = np.random.default_rng(0).permutation(len(said))
    once = dawid_skene(raters, items, said)
    again = dawid_skene(raters[order], items[order], said[order])
    assert (once.posterior == again.posterior).all()
    assert once.iterations == again.iterations


def test_one_rater_is_believed_and_a_draw_is_not_decided() -> None:
    items = np.arange(4)
    alone = dawid_skene(np.zeros(4, dtype=int), items, np.array([0.0, 1, 2, 2]))
    assert alone.most_likely().tolist() == [0, 1, 2, 2]
    pair = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 1, 1, 2, 2])
    # Each says once what the other does not: nothing tells whom to believe on the last item.
    torn = dawid_skene(*pair, np.array([0.0, 0, 1, 1, 0, 1]), iterations=1)
    assert np.isnan(torn.most_likely()[2])
    one = dawid_skene(np.array([0, 1]), np.array([0, 0]), np.array([2.0, 2.0]))
    assert one.most_likely().tolist() == [2]


def test_thousands_of_raters_do_not_underflow() -> None:
    raters = np.arange(5000)
    said = np.where(raters % 3 == 0, 0.0, 1.0)
    two = np.concatenate([np.zeros(5000, dtype=int), np.ones(5000, dtype=int)])
    found = dawid_skene(np.tile(raters, 2), two, np.concatenate([said, 1 - said]))
    assert np.isfinite(found.posterior).all()
    assert found.most_likely().tolist() == [1, 0]


def test_what_is_no_judgment_is_refused() -> None:
    one = np.array([0])
    with pytest.raises(UsageError, match="at least one"):
        dawid_skene(one[:0], one[:0], one[:0].astype(float))
    with pytest.raises(UsageError, match="make no judgments"):
        dawid_skene(one, one, np.array([1.0, 2.0]))
    with pytest.raises(UsageError, match="twice"):
        dawid_skene(np.array([0, 0]), np.array([4, 4]), np.array([1.0, 2.0]))
