"""Reports: an evaluation and its analyses as one document, and the forms that it is written in.

``document`` holds the Report, ``assembly`` makes it from an Evaluation, ``outputs`` writes it;
``html`` is its page.
"""
