"""Fine-tune any task over the paper's grid of batch sizes, learning rates and epochs.

    python grid.py --config=../../configs/finetune.py:mrpc,init_from=DIR --workdir=runs/grid \\
      --seeds=0,1,2,3,4 --config.task.source='files:glue_data/MRPC'

The grid is batches of 16 and 32; rates of 5e-5, 3e-5 and 2e-5; 2, 3 and 4 epochs; several seeds. It
is an ordinary study, whose flags may follow: the same command again resumes it, runs no finished
cell twice, and `bert-jax study status` shows how far it is. A run counts with its last step on
development data, not with its best one. Each cell's mean and spread over its seeds is printed, and
separately the best of all runs, which is what the paper and most others report: chosen on the data
it is scored on, it is too good.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bert_jax import cli
from bert_jax.config import load_file
from bert_jax.reporting.metric_names import need_direction
from bert_jax.studies.cell_result import Result
from bert_jax.studies.definition import Study, Suite, axis
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report.intervals import summarize_values
from bert_jax.studies.results import gather_cells

GRID = {"batch": "16,32", "rate": "5e-5,3e-5,2e-5", "epochs": "2,3,4", "seeds": "0,1,2,3,4"}


def get_study(arg: str) -> Study:
    """Build the grid of `BATCHES;RATES;EPOCHS;SEEDS;CONFIG`, lists with commas and a config."""
    *lists, config = arg.split(";", len(GRID))
    batches, rates, epochs, seeds = (text.split(",") for text in lists)
    return Study(
        question="Which batch size, learning rate and number of epochs fine-tune best?",
        base=load_file(config),
        axes=(
            axis("batch_size", map(int, batches)),
            axis("optim.learning_rate", map(float, rates)),
            axis("epochs", map(float, epochs)),
        ),
        seeds=tuple(map(int, seeds)),
        pair_seeds=True,
        evaluations={"dev": Suite("task")},
    )


def report(cells: Sequence[Result], metric: str) -> str:
    """Write a table with a line for each cell, and below it the best run by itself."""
    values = defaultdict(list)
    for cell in cells:
        if f"dev/{metric}" in cell.metrics:
            place = tuple(f"{value:g}" for value in cell.entry.values.values())
            values[place].append(cell.metrics[f"dev/{metric}"])
    header = ["batch", "rate", "epochs", "n", f"mean {metric}", "standard deviation"]
    lines = [f"| {' | '.join([*header, '95 % interval'])} |", "|" + "---|" * 7]
    over_seeds = {knobs: summarize_values(known) for knobs, known in values.items()}
    for knobs, mean in over_seeds.items():
        spread = "unknown | unknown"
        if mean.n > 1:
            spread = f"{mean.deviation:.4f} | {mean.low:.4f} to {mean.high:.4f}"
        lines.append(f"| {' | '.join(knobs)} | {mean.n} | {mean.mean:.4f} | {spread} |")
    pick = min if need_direction(metric) < 0 else max
    runs = [run for known in values.values() for run in known]
    if runs:
        best = pick(over_seeds, key=lambda knobs: over_seeds[knobs].mean)
        named = ", ".join(map(" ".join, zip(header, best, strict=False)))
        lines += ["", f"best mean: {named}", f"best of all {len(runs)} runs on the development "]
        lines[-1] += f"data they were chosen on (optimistic): {pick(runs):.4f}"
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
    parser.add_argument(
        "--metric", help="metric to compare by; the config's checkpoints.best unless given"
    )
    for name, values in GRID.items():
        parser.add_argument(f"--{name}", default=values)
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args, flags = parser.parse_known_args()
    code = 0
    if not args.report_only:
        spec = ";".join([*(getattr(args, name) for name in GRID), args.config])
        study = f"{Path(__file__).resolve()}:{spec}"
        code = cli.execute(["study", "run", study, f"--workdir={args.workdir}", *flags])
    if (args.workdir / "study.json").exists():
        cells = gather_cells(StudyFolder(args.workdir))
        print(report(cells, args.metric or cells[0].entry.config.checkpoints.best))
    return code


if __name__ == "__main__":
    sys.exit(main())
