"""Figures that tests draw, one of each kind."""

import math

from bert_jax.reporting.figures import Chart, Heat, Series

POINTS = [(10.0, 1.0), (20.0, 2.0), (40.0, 4.0)]
LINE = Chart("t", [Series("s", POINTS)], x="tokens", y="loss (nats)")
MEANS = [(0, 10.0), (1, 12.0), (2, 16.0)]
WHISKERS = [(0, 9, 11), (1, 11, 13), (2, 15, 17)]
SEEDS = Series("s", MEANS, whiskers=WHISKERS, dots=[(0, 9.5), (0, 10.5)])
NAMES = [f"the name of row {i}, which is longer than a line of names" for i in range(3)]
ROWS = Chart("t", [SEEDS], rows=NAMES, y="score (points)")
VALUES = [[1.0, 2.0], [3.0, math.nan]]
SHADES = [[1.0, 0.5], [0.0, 0.0]]
HEAT = Heat("t", ["a", "b"], ["c", "d"], VALUES, SHADES, x="columns", y="rows", marks={(0, 0)})
FIGURES = [LINE, ROWS, HEAT]
EMPTY = [
    Chart("t", []),
    Chart("t", [Series("s", [(1.0, math.nan)])], [("b", 1.0)]),
    Chart("t", [Series("s", [(0, math.inf)])], rows=["a"]),
    Heat("t", ["a"], ["b"], [[math.nan]], [[0.0]]),
]
