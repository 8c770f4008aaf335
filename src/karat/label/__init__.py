"""Labelling: what to judge, who judges it, and how far the labels can be trusted.

Questions, each a function that returns a result: ``pool.pool``, ``judge.judge``,
``calibrate.calibrate`` and ``next_judgments.next_judgments``. ``label_store`` keeps
judgments in the store. Importing this package loads nothing.
"""
