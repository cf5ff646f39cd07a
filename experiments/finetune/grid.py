"""Fine-tune any task over the paper's grid of batch sizes, learning rates and epochs.

    python grid.py --config=../../configs/finetune.py:mrpc,init_from=DIR --workdir=runs/grid \\
      --seeds=0,1,2,3,4 --config.task.source='files:glue_data/MRPC'

The grid is batches of 16 and 32; rates of 5e-5, 3e-5 and 2e-5; 2, 3 and 4 epochs; several seeds. A
cell is one `bert-jax train` with its own workdir below --workdir. The same command again resumes
the grid and runs no finished cell twice. A run counts with its last evaluation on development data,
not with its best one. results.csv has a row for each run. Each cell's mean and spread over its
seeds is printed, and separately the best of all runs, which is what the paper and most others
report: chosen on the data it is scored on, it is too good.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bert_jax.evaluation.scores import higher_is_better
from bert_jax.studies.report.intervals import summary

AXES = {
    "batch_size": (16, 32),
    "optim.learning_rate": (5e-5, 3e-5, 2e-5),
    "epochs": (2.0, 3.0, 4.0),
}
SHORT = {"batch_size": "batch", "optim.learning_rate": "rate", "epochs": "epochs"}


def cells(axes: dict[str, list]) -> list[dict[str, Any]]:
    """Return every combination of the axes, the first axis changing slowest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def folder(workdir: Path, cell: dict[str, Any], seed: int) -> Path:
    """Return the workdir of one run."""
    parts = [f"{SHORT[knob]}_{value:g}" for knob, value in cell.items()]
    return workdir / "cells" / "-".join([*parts, f"seed_{seed}"])


def last_evaluation(run: Path) -> dict[str, float] | None:
    """Return the metrics of a finished run, or None if it has not finished."""
    if not (run / "report.html").exists():  # the last thing a run writes
        return None
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    prefix = "eval/validation/"
    evaluated = [line for line in lines if any(key.startswith(prefix) for key in line)]
    return {k.removeprefix(prefix): v for k, v in evaluated[-1].items() if k.startswith(prefix)}


def check_same(workdir: Path, flags: list[str]) -> None:
    """Refuse a folder that holds a grid with other flags: its cells would be compared with ours."""
    file = workdir / "flags.json"
    if file.exists() and json.loads(file.read_text()) != flags:
        raise SystemExit(
            f"error: {workdir} holds a grid with other flags: {file.read_text()}; "
            "use another --workdir"
        )
    workdir.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(flags))


def run(flags: list[str], workdir: Path, cell: dict[str, Any], seed: int) -> int:
    """Train one cell with one seed, and return the exit code of `bert-jax train`."""
    changes = {**cell, "seed": seed, "data_seed": seed}
    command = ["train", *flags, *(f"--config.{k}={v}" for k, v in changes.items())]
    run_folder = folder(workdir, cell, seed)
    run_folder.mkdir(parents=True, exist_ok=True)
    with (run_folder / "grid.log").open("a") as log:
        program = [sys.executable, "-m", "bert_jax.cli", *command, f"--workdir={run_folder}"]
        return subprocess.run(program, stdout=log, stderr=log, check=False).returncode


def collect(workdir: Path, grid: list[dict[str, Any]], seeds: list[int]) -> list[dict[str, Any]]:
    """Return a row for each finished run, and write the rows to results.csv."""
    rows = []
    for cell, seed in itertools.product(grid, seeds):
        if metrics := last_evaluation(folder(workdir, cell, seed)):
            rows.append({**cell, "seed": seed, **metrics})
    if rows:
        with (workdir / "results.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return rows


def report(rows: list[dict[str, Any]], grid: list[dict[str, Any]], metric: str) -> str:
    """Write a table with a line for each cell, and below it the best run by itself."""
    higher = higher_is_better(metric)
    header = [*SHORT.values(), "n", f"mean {metric}", "standard deviation", "95 % interval"]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * 7]
    means = {}
    for number, cell in enumerate(grid):
        values = [row[metric] for row in rows if all(row[k] == v for k, v in cell.items())]
        if not values:
            continue
        over_seeds = summary(values, higher_is_better=higher)
        means[number] = over_seeds.mean
        spread = "unknown | unknown"
        if over_seeds.n > 1:
            interval = f"{over_seeds.low:.4f} to {over_seeds.high:.4f}"
            spread = f"{over_seeds.deviation:.4f} | {interval}"
        knobs = " | ".join(f"{value:g}" for value in cell.values())
        lines.append(f"| {knobs} | {over_seeds.n} | {over_seeds.mean:.4f} | {spread} |")
    if means:
        pick = max if higher else min
        cell = grid[pick(means, key=lambda number: means[number])]
        best = summary([row[metric] for row in rows], higher_is_better=higher)
        lines += [
            "",
            f"best mean: {', '.join(f'{SHORT[k]} {v:g}' for k, v in cell.items())}",
            f"best of all {best.n} runs on the development data they were chosen on (optimistic): "
            f"{best.best:.4f}",
        ]
    return "\n".join(lines)


def main() -> int:
    """Run the cells that are missing, and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", required=True, help="as of `bert-jax train`; its --config.A=B may follow"
    )
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument(
        "--metric", help="metric to compare by; the config's checkpoints.best unless given"
    )
    for axis, values in AXES.items():
        parser.add_argument(f"--{SHORT[axis]}", default=",".join(map(str, values)))
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args, extra = parser.parse_known_args()
    flags = [f"--config={args.config}", *extra]
    axes = {
        axis: [type(AXES[axis][0])(v) for v in getattr(args, SHORT[axis]).split(",")]
        for axis in AXES
    }
    grid, seeds = cells(axes), [int(seed) for seed in args.seeds.split(",")]
    check_same(args.workdir, flags)
    failed = 0
    # Seed by seed, so that the cells can be compared before all seeds have run.
    for seed, cell in itertools.product(seeds, [] if args.report_only else grid):
        workdir = folder(args.workdir, cell, seed)
        if last_evaluation(workdir) is None:
            code = run(flags, args.workdir, cell, seed)
            print(f"{workdir.name}: exit code {code}", file=sys.stderr, flush=True)
            if code in (2, 75):  # a mistake that all cells share, or a signal
                return code
            failed += code != 0
    rows = collect(args.workdir, grid, seeds)
    if not rows:
        raise SystemExit("error: no cell has finished; cells/*/grid.log say why")
    metric = args.metric
    if not metric:
        config = folder(args.workdir, grid[0], seeds[0]) / "config.json"
        metric = json.loads(config.read_text())["checkpoints"]["best"]
    print(report(rows, grid, metric))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
