"""Quartiles are those of NumPy, to the bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from karat.measure.aggregates import quartiles


@given(st.lists(st.floats(-1e6, 1e6).map(lambda value: value + 0.0), min_size=1, max_size=60))
def test_quartiles_are_those_of_numpy(values):
    expected = np.percentile(values, [0, 25, 50, 75, 100]).tolist()
    assert list(quartiles(np.array(values))) == expected
