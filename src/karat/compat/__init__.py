"""Commands and outputs of the tools that karat stands in for: A/B harness, story, memory, minimal.

Only the command line and the web server import this package.
"""
