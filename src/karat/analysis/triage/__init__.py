"""The worst queries with all there is to see: gold, lists, terms, ranks."""
