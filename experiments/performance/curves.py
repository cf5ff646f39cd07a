"""Measure the cost of an update against batch, length, layers, width, rate, runs and devices.

    python experiments/performance/curves.py [NAME ...] [--rounds=3]

The points of a curve are contestants of one benchmark, timed in turn. Rows go to curves.csv and the
figure to curves.png, beside this file; measuring a curve again replaces its rows. The devices are
up to eight fake ones on the same cores: they show that shapes and collectives are right, and what
splitting costs where nothing is gained.
"""

import argparse
import csv
import os
from pathlib import Path
from typing import Any

import bench
import turns

from bert_jax import config as configs
from bert_jax.reporting import files
from bert_jax.reporting.figures import Chart, Series

HERE = Path(__file__).parent
TABLE = HERE / "curves.csv"
TOKENS = 32 * 128
CURVES: dict[str, tuple[str, list[tuple[float, dict[str, Any]]]]] = {
    "batch": (
        "rows a batch, 128 tokens each",
        [(n, {"batch_size": n}) for n in (1, 2, 4, 8, 16, 32, 64)],
    ),
    "length": (
        f"tokens a row, {TOKENS:,} a batch",
        [
            (
                n,
                {
                    "sequence_length": n,
                    "batch_size": TOKENS // n,
                    "model.max_positions": max(n, 512),
                },
            )
            for n in (32, 64, 128, 256, 512)
        ],
    ),
    "layers": ("layers", [(n, {"model.layers": n}) for n in (1, 2, 4, 8)]),
    "width": (
        "width",
        [
            (n, {"model.hidden": n, "model.heads": n // 64, "model.mlp": 4 * n})
            for n in (128, 256, 512, 768)
        ],
    ),
    "rate": ("masking rate", [(n, {"masking.rate": n}) for n in (0.15, 0.3, 0.45, 0.6, 0.8)]),
    "arms": ("runs in one program", [(n, {}) for n in (1, 2, 4, 8)]),
    "devices": ("fake devices on the same two cores", [(n, {}) for n in (1, 2, 4, 8)]),
}


def measure(name: str, rounds: int) -> list[dict[str, Any]]:
    """Measure a curve, and return its rows."""
    contestants = []
    for x, changes in CURVES[name][1]:
        runs = int(x) if name == "arms" else 1
        contestants.append((x, setup(changes).ours(f"{x:g}", "train_step", runs=runs)))
    if name == "devices":  # their number is a setting of a process, which contestants inherit
        results = []
        for x, contestant in contestants:
            os.environ["JAX_NUM_CPU_DEVICES"] = f"{x:g}"
            results += turns.compare([contestant], rounds)
        del os.environ["JAX_NUM_CPU_DEVICES"]
    else:
        results = turns.compare([contestant for _, contestant in contestants], rounds)
    return [
        {
            "curve": name,
            "x": x,
            "median_ms": round(1000 * result.seconds, 2),
            "min_ms": round(1000 * result.fastest, 2),
            "tokens_per_second": round(result.units / result.seconds),
            "gflops_per_second": round(result.about["flops"] / result.seconds / 1e9, 1),
        }
        for (x, _), result in zip(contestants, results, strict=True)
    ]


def setup(changes: dict[str, Any]) -> bench.Setup:
    """Set up the usual benchmark with some knobs changed."""
    tree = bench.make_tree(None, bench.SIZE)
    for path, value in changes.items():
        configs.put(tree, path.split("."), value)
    return bench.Setup(configs.resolve(tree))


def draw(rows: list[dict[str, str]]) -> None:
    """Draw curves.png, a panel for each curve that was measured.

    It shows least times, since other work on a machine can only add to a time.
    """
    figures = []
    for name, (axis, _) in CURVES.items():
        points = [(float(row["x"]), float(row["min_ms"])) for row in rows if row["curve"] == name]
        figures.append(
            Chart(
                f"Against {name}",
                [Series("", points)],
                zero=True,
                x=axis,
                y="least time of an update (ms)",
                ticks=[(x, f"{x:g}") for x, _ in points],
            )
        )
    measured = [figure for figure in figures if figure.series[0].points]
    columns = -(-len(measured) // 2)
    files.write_figures(HERE / "curves", measured, columns=columns, kinds=("png",))


def main() -> None:
    """Measure the curves, write the table and draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(CURVES)}; all if none is given"
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in CURVES]
    if unknown or args.rounds < 1:
        parser.error(
            f"no curve {', '.join(unknown)}; there are {', '.join(CURVES)}"
            if unknown
            else "--rounds >= 1"
        )
    kept: list[dict[str, Any]] = []
    if TABLE.exists():
        kept = list(csv.DictReader(TABLE.open()))
    for name in args.names or CURVES:
        kept = [row for row in kept if row["curve"] != name] + measure(name, args.rounds)
        with TABLE.open("w", newline="") as file:
            writing = csv.DictWriter(file, list(kept[0]), lineterminator="\n")
            writing.writeheader()
            writing.writerows(
                sorted(kept, key=lambda row: (list(CURVES).index(row["curve"]), float(row["x"])))
            )
    draw(list(csv.DictReader(TABLE.open())))


if __name__ == "__main__":
    main()
