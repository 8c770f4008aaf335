"""One way from inputs to a verdict: an Evaluation, its scores, segments, comparison and gates.

``evaluation`` holds the Evaluation and ``inputs`` reads what it is given; ``api`` has the functions
of ``karat``. ``comparison`` compares ``systems`` by ``paired_tests``, and ``verdict`` decides.
``gates`` judges what ``gate_files`` reads. ``unjudged_ranges`` and ``verdict_stability`` say what
more judgments could change, ``judged_labels`` what a judge's labels do. ``stages`` scores the
earlier lists of a log, and ``baseline`` fetches a stored evaluation.
"""
