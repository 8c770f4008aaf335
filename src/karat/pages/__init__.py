"""Pages: what people see of a result. ``Page`` and its blocks, ``Result``, and the renderers.

``terminal``, ``markdown`` and ``html`` draw any page; ``formatting`` has number formats,
``charts`` Vega-Lite specifications, ``sparklines`` charts made of letters.
"""

from karat.pages.page import Block, Chart, Grid, Page, Section, Sentence
from karat.pages.result import AnalysisResult, Result

__all__ = [
    "AnalysisResult",
    "Block",
    "Chart",
    "Grid",
    "Page",
    "Result",
    "Section",
    "Sentence",
]
