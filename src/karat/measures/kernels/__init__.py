"""The measures themselves; importing this package registers all of them."""

from karat.measures.kernels import calls, lists, ranks, trec

__all__ = ["calls", "lists", "ranks", "trec"]
