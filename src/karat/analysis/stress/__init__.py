"""Lists damaged on purpose, and how much worse they became."""
