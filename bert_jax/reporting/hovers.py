"""Texts that charts show under the pointer: exact values, where they stand, and their intervals."""

from __future__ import annotations

import math

from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import exact


class Hovers:
    """Texts of the points of a series in a chart."""

    def __init__(self, chart: Chart, series: Series):
        self.chart, self.name, self.labels = chart, series.name, dict(chart.ticks)
        self.ends = {at: (low, high) for at, low, high in (*series.band, *series.whiskers)}

    def place(self, x: float) -> str:
        """Write a place: the name of a row, or the name of the axis with a label or number."""
        if self.chart.rows:
            return self.chart.rows[int(x)]
        name = self.chart.x.partition(" (")[0]  # without the unit
        return f"{name} {self.labels.get(x) or exact(round(x) if abs(x) >= 100 else x)}"

    def value(self, x: float, y: float) -> str:
        """Write a value with its interval, if it has one."""
        text, (low, high) = self._exact(y), self.ends.get(x, (math.nan, math.nan))
        return (
            text
            if math.isnan(low + high)
            else f"{text} ({self._exact(low)} to {self._exact(high)})"
        )

    def point(self, x: float, y: float) -> str:
        """Write the series, the place, the value and its interval."""
        return f"{self._head(x)}: {self.value(x, y)}"

    def single(self, x: float, y: float) -> str:
        """Write the series, the place and the value, which is one of those that a mean is of."""
        return f"{self._head(x)}: {self._exact(y)}"

    def _head(self, x: float) -> str:
        return ", ".join(filter(None, [self.name, self.place(x)]))

    def _exact(self, value: float) -> str:
        return exact(value, self.chart.percent)
