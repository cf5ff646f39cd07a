"""What an update costs against batch, length, layers, width, masking rate, arms and devices.

    python experiments/performance/curves.py [NAME ...] [--rounds=3]

The points of a curve are contestants of one interleaved run. Rows go to curves.csv and figures
beside this file; a curve measured again replaces its rows. Devices are eight fake ones on the same
cores: they show that shapes and collectives are right, and what splitting costs where nothing is
gained.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from bert_jax import config as configs
from bert_jax.benchmarks import harness, table

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
    """The rows of a curve."""
    made = []
    for x, changes in CURVES[name][1]:
        arms = int(x) if name == "arms" else 1
        contestant = asked(changes).ours(f"{x:g}", "train_step", runs=arms)
        made.append((x, contestant))
    if name == "devices":  # their number is a setting of a process, which contestants inherit
        found = []
        for x, contestant in made:
            os.environ["JAX_NUM_CPU_DEVICES"] = f"{x:g}"
            found += harness.compare([contestant], rounds)
        del os.environ["JAX_NUM_CPU_DEVICES"]
    else:
        found = harness.compare([contestant for _, contestant in made], rounds)
    return [
        {
            "curve": name,
            "x": x,
            "median_ms": round(1000 * one.seconds, 2),
            "min_ms": round(1000 * one.fastest, 2),
            "tokens_per_second": round(one.rate),
            "gflops_per_second": round(one.about["flops"] / one.seconds / 1e9, 1),
        }
        for (x, _), one in zip(made, found, strict=True)
    ]


def asked(changes: dict[str, Any]) -> table.Setup:
    """The usual benchmark with other knobs."""
    tree = table.tree_of(None, table.SIZE)
    for path, value in changes.items():
        configs.put(tree, path.split("."), value)
    return table.Setup(configs.resolve(tree), "", "")


def draw(rows: list[dict[str, str]]) -> None:
    """curves.png: a panel for each curve that was measured, of least times: what disturbs a machine
    only adds.
    """
    names = [name for name in CURVES if any(row["curve"] == name for row in rows)]
    figure, panels = plt.subplots(
        2, -(-len(names) // 2), figsize=(13, 6), layout="constrained", squeeze=False
    )
    for panel in panels.flat[len(names) :]:
        panel.axis("off")
    for name, panel in zip(names, panels.flat, strict=False):
        mine = [row for row in rows if row["curve"] == name]
        x, y = [float(row["x"]) for row in mine], [float(row["min_ms"]) for row in mine]
        panel.plot(x, y, marker="o")
        panel.set(
            title=f"against {name}",
            xlabel=CURVES[name][0],
            ylabel="ms an update, the least",
            ylim=(0, None),
        )
        panel.set_xticks(x, [f"{one:g}" for one in x])
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "curves.png", dpi=130)


def main() -> None:
    """Measures, writes, draws."""
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
