"""The engine behind ``karat ab``: settings, base ranking, BM25, fusion, diversity, traces."""
