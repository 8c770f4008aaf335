"""A karat.yaml and what is done with it: ``Project`` searches, evaluates, compares and reports.

``config`` reads the file, ``systems`` builds its systems and plans a search.
"""
