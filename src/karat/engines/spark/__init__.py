"""Spark: the same kernels over blocks of queries, on one machine or many."""
