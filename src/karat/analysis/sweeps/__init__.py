"""Measures over their cut-offs: curves, knees, headroom, budgets."""
