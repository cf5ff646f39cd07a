"""Summarise the comparison: results.csv, figure.png, and the README's table on standard output.

    python table.py --workdir=W

Run it after `theirs.py train` and compare.py's commands.
"""

import argparse
import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from compare import HERE, NAMES, command, config_of, read
from recipes import RECIPES

from bert_jax.data.answers import Span
from bert_jax.evaluation import scores
from bert_jax.reporting import files
from bert_jax.reporting.figures import Chart, Series
from bert_jax.studies.report.intervals import summarize_values
from bert_jax.training import data


def metrics_of_theirs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the lines of W/theirs.jsonl with metrics, by the code that scores our own runs."""
    tasks: dict[str, Any] = {}
    lines = []
    for line in read(args.workdir / "theirs.jsonl"):
        task, kind = line["task"], RECIPES[line["task"]].kind
        if task not in tasks:
            config = config_of(command(args, task, 0, steps=1)).config
            tasks[task] = config, data.load_held_out(config, "validation")
        config, examples = tasks[task]
        labels, predictions = config.objectives[kind].labels, line["predictions"]
        if kind == "classify":
            predictions = [np.eye(len(labels))[label] for label in predictions]
        elif kind == "span":
            predictions = [
                Span(text, 0, len(text), 0.0, margin, ()) for text, margin in predictions
            ]
        elif kind == "tag":
            predictions = [tuple(tags) for tags in predictions]
        lines.append(line | scores.score(kind, examples, predictions, labels, config.task))
    return lines


def welch(values: dict[str, list[float]]) -> tuple[float, float, float]:
    """Return ours less theirs, in the mean, and Welch's 95 % interval."""
    ours, theirs = values["ours"], values["theirs"]
    mean = float(np.mean(ours) - np.mean(theirs))
    if np.ptp(ours) == np.ptp(theirs) == 0:  # constants
        return mean, mean, mean
    low, high = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return (mean, low, high) if low <= high else (mean, -math.inf, math.inf)  # of a single seed


def table(args: argparse.Namespace) -> None:
    """Write results.csv and figure.png beside this file, and print the README's table."""
    sides = {"ours": read(args.workdir / "ours.jsonl"), "theirs": metrics_of_theirs(args)}
    agreed = {line["task"]: line["worst"] for line in read(args.workdir / "losses.jsonl")}
    timed = {line["task"]: line for line in read(args.workdir / "times.jsonl")}
    rows = []
    for task, recipe in RECIPES.items():
        lines_of = {
            side: {line["seed"]: line for line in lines if line["task"] == task}
            for side, lines in sides.items()
        }
        seeds = sorted(lines_of["ours"].keys() & lines_of["theirs"].keys())
        if not seeds:
            continue
        values = {
            side: [lines[seed][recipe.metric] for seed in seeds] for side, lines in lines_of.items()
        }
        difference = welch(values)
        made = lines_of["ours"][seeds[0]]["updates"]
        row: dict[str, Any] = {"task": task, "metric": recipe.metric, "updates": made}
        row["seeds"] = len(seeds)
        for side, numbers in values.items():
            row |= {
                f"{side}_mean": summarize_values(numbers).mean,
                f"{side}_deviation": summarize_values(numbers).deviation,
            }
        row |= dict(zip(("difference", "low", "high"), difference, strict=True))
        row["zero_inside"] = row["low"] <= 0 <= row["high"]
        # Of the second half of training, with dropout: after so few updates it tells more than a
        # metric does.
        late = {
            side: [np.mean(lines[s]["losses"][len(lines[s]["losses"]) // 2 :]) for s in seeds]
            for side, lines in lines_of.items()
        }
        row |= dict(zip(("loss_difference", "loss_low", "loss_high"), welch(late), strict=True))
        row["largest_loss_difference"] = agreed.get(task, "")
        for key in ("ours_cpu_median", "theirs_cpu_median", "cpu_ratio", "wall_ratio"):
            row[key] = timed.get(task, {}).get(key, "")
        rows.append(
            row | {f"{side}_values": " ".join(f"{v:.6g}" for v in values[side]) for side in values}
        )
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(_markdown(rows))
    _figure(rows)


def _markdown(rows: list[dict[str, Any]]) -> str:
    heads = ["task, metric", "updates", "seeds", "(b) ours", "(b) transformers"]
    heads += ["(b) difference, 95 % interval", "(b) difference of the loss, 95 % interval"]
    heads += ["(a) largest difference of 50 losses", "(c) CPU seconds, transformers / ours"]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        digits = 1 if row["task"] in NAMES else 3  # SQuAD's metrics are in per cent
        line = [f"{row['task']}, {row['metric']}", str(row["updates"]), str(row["seeds"])]
        for side in ("ours", "theirs"):
            mean, deviation = row[f"{side}_mean"], row[f"{side}_deviation"]
            line.append(f"{mean:.{digits}f} ± {deviation:.{digits}f}")
        line.append(_interval(row["difference"], row["low"], row["high"], digits))
        line.append(_interval(row["loss_difference"], row["loss_low"], row["loss_high"], 3))
        worst, ratio = row["largest_loss_difference"], row["cpu_ratio"]
        line.append(f"{worst:.1e}" if worst != "" else "")
        line.append(f"{ratio:.2f}" if ratio != "" else "")
        lines.append(line)
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _interval(value: float, low: float, high: float, digits: int) -> str:
    value, low, high = (round(number, digits) + 0.0 for number in (value, low, high))  # no -0.0
    return f"{value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def _figure(rows: list[dict[str, Any]]) -> None:
    """Draw each task's seeds, as distances from their mean, and the interval of the difference."""
    points: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
    differences, intervals = [], []
    for place, row in enumerate(rows):
        unit = 1 if row["task"] in NAMES else 100  # so that all are in per cent
        values = {side: [float(v) for v in row[f"{side}_values"].split()] for side in points}
        middle = float(np.mean([*values.values()]))
        for side, numbers in values.items():
            points[side] += [(place, unit * (number - middle)) for number in numbers]
        difference, low, high = (unit * float(row[key]) for key in ("difference", "low", "high"))
        differences.append((place, difference))
        intervals.append((place, low, high))
    names = [f"{row['task']} ({row['metric']})" for row in rows]
    seeds = Chart(
        "Each seed, less the mean of all",
        [Series("bert_jax", points["ours"]), Series("transformers", points["theirs"], "c2")],
        baselines=[("", 0.0)],
        rows=names,
        x="",
        y="difference from the mean (percentage points)",
    )
    gaps = Chart(
        "Ours less theirs: means and 95 % intervals",
        [Series("", differences, whiskers=intervals)],
        baselines=[("", 0.0)],
        rows=names,
        x="",
        y="difference (percentage points)",
    )
    files.write_figures(HERE / "figure", [seeds, gaps], columns=2, kinds=("png",))


def main() -> None:
    """Parse the flags and summarise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data")
    parser.add_argument("--workdir", type=Path, required=True)
    table(parser.parse_args())


if __name__ == "__main__":
    main()
