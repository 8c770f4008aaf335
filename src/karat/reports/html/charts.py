"""The charts of a report's page, made of its document."""

from __future__ import annotations

from karat.reports.html.chart_curves import curve_charts
from karat.reports.html.chart_losses import loss_charts
from karat.reports.html.chart_parts import Chart, Document, Key
from karat.reports.html.chart_times import latency_charts
from karat.reports.html.chart_trade import trade_charts

__all__ = ["Chart", "Key", "charts_of"]


def charts_of(document: Document) -> list[Chart]:
    """All charts that a report has figures for, in the order of its sections."""
    return [
        *curve_charts(document),
        *loss_charts(document),
        *latency_charts(document),
        *trade_charts(document),
    ]
