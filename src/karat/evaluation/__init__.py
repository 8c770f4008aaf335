"""One way from inputs to a verdict: an Evaluation, its scores, segments, comparison and gates.

``evaluation`` holds the Evaluation and ``inputs`` reads what it is given; ``api`` has the functions
of ``karat``. ``comparison`` tests ``systems`` against each other, and ``verdict`` decides.
``gates`` judges what ``gate_files`` reads. ``bounds`` says what more judgments could change,
``judged_labels`` what a judge's labels do. ``stages`` scores the earlier lists of a log, and
``report_text`` puts results into sentences and tables.
"""
