"""The measures themselves; importing this package registers all of them."""

from karat.measures.kernels import gains, lists, ranks, trec

__all__ = ["gains", "lists", "ranks", "trec"]
