"""What long series of calls share: a journal to resume from, a cache, a rate limit, redaction.

Nothing here knows what is called: ``retrieve`` asks search systems with it, ``label`` asks
judges. Importing this package loads nothing.
"""
