"""Figures that tests draw, one of each kind."""

import math

from bert_jax.reporting.figures import Chart, Heat, Series

POINTS = [(10.0, 1.0), (20.0, 2.0), (40.0, 4.0)]
LINE = Chart("t", [Series("s", POINTS)], x="tokens", y="loss (nats)")
SEEDS = Series(
    "s",
    [(0, 10.0), (1, 12.0), (2, 16.0)],
    whiskers=[(0, 9, 11), (1, 11, 13), (2, 15, 17)],
    dots=[(0, 9.5), (0, 10.5)],
)
ROWS = Chart(
    "t",
    [SEEDS],
    rows=[f"the name of row {i}, which is longer than a line of names" for i in range(3)],
    y="score (points)",
)
HEAT = Heat(
    "t",
    ["a", "b"],
    ["c", "d"],
    [[1.0, 2.0], [3.0, math.nan]],
    [[1.0, 0.5], [0.0, 0.0]],
    x="columns",
    y="rows",
    marks={(0, 0)},
)
FIGURES = [LINE, ROWS, HEAT]
EMPTY = [
    Chart("t", []),
    Chart("t", [Series("s", [(1.0, math.nan)])], [("b", 1.0)]),
    Chart("t", [Series("s", [(0, math.inf)])], rows=["a"]),
    Heat("t", ["a"], ["b"], [[math.nan]], [[0.0]]),
]
