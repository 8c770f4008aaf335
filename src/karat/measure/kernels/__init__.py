"""The measures themselves; importing this package registers all of them."""

from karat.measure.kernels import lists, ranks

__all__ = ["lists", "ranks"]
