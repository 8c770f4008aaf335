"""Measures: what a number means, from a ranked list and its gold to one value per query."""
