"""The HTML page of a report: ``render`` puts its sections, charts and queries into one file."""
