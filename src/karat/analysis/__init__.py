"""Analyses: one module or package per question about runs, each with the same front.

A function takes an Evaluation and runs, and returns a result with ``to_dict``, ``to_frame`` and
``page``: ``sweep``, ``triage``, ``stages``, ``stress``, ``diagnosis``. ``chunks`` takes documents
and ``check`` an eval set. The other modules answer one question for ``diagnosis``: ``failures``,
``findings``, ``latency``, ``freshness``, ``diversity``, ``no_answer``, ``hubs``, ``reach``.
"""
