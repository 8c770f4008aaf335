"""Commands and outputs of the tools that karat replaces: A/B harness, story, memory, minimal.

Only the command line and the web server import this package.
"""
