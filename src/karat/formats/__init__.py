"""Read and write files: one module per format, each with ``read_*`` and ``write_*`` functions.

``karat.formats.readers`` picks the format by content and suffix; ``karat.formats.registry`` lists
all formats. The module of a format is loaded when a file of that format is read or written.
"""
