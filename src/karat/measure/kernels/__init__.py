"""The measures themselves; importing this package registers all of them."""

from karat.measure.kernels import gains, lists, ranks, trec

__all__ = ["gains", "lists", "ranks", "trec"]
