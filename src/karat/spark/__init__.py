"""Spark as an engine of an evaluation: the same kernels over blocks of queries."""
