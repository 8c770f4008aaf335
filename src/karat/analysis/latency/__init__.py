"""Where the time of calls goes, and what quality it buys."""
