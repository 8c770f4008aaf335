"""Retrievers: the built-in ones, adapters to real systems, and the runner that logs them.

Importing this package loads nothing; a kind's module is loaded when a system names it.
"""
