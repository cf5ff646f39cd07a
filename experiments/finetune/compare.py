"""Compare our fine-tuning with that of transformers: same checkpoint, head, data, recipe, seeds.

    python compare.py losses --workdir=W --torch=PYTHON
    python compare.py ours --workdir=W
    python compare.py times --workdir=W

losses: 50 updates without dropout, on both sides in the same order.
ours:   every task and seed through `bert-jax train`, into W/ours.jsonl.
times:  the seconds of updates of both sides in turn; needs a Python with torch and bert_jax.

`losses` and `ours` need bert_jax only; `losses` starts theirs.py with the Python of --torch.
Results that are in W already are not computed again. table.py summarises them.
"""

import argparse
import functools
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from recipes import BATCH, RECIPES, SEEDS, WARMUP, updates

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parents[1] / "configs" / "finetune.py"
NAMES = {"xquad": "squad", "electronics": "squad2"}  # names in data/tasks.py
LOSSES, SMALL = 50, 8  # updates without dropout, and rows of each


def command(args: argparse.Namespace, task: str, seed: int, **changes: Any) -> list[str]:
    """Return the flags of `bert-jax train` for one task and seed, without --workdir."""
    recipe = RECIPES[task]
    kind = {} if recipe.kind != "tag" else {"objectives.tag.labels": ",".join(recipe.labels)}
    knobs = kind | {
        "task.source": f"files:train={args.data / recipe.train},"
        f"validation={args.data / recipe.dev}",
        "task.rows": recipe.rows,
        "task.stride": recipe.stride,
        "task.stride_as": "step",
        "sequence_length": recipe.length,
        "batch_size": BATCH,
        "epochs": None,
        "optim.learning_rate": recipe.rate,
        "optim.warmup_fraction": WARMUP,
        "seed": seed,
        "data_seed": seed,
        "checkpoints.epochs": None,
        "checkpoints.best": "",
        "evals.validation.epochs": None,
        "evals.validation.every": 0,
        "logging.every": 1,
        "logging.trackers": (),
    }
    knobs |= changes
    name = f"{NAMES.get(task, task)},init_from={args.workdir / 'heads' / f'{task}-{seed}'}"
    return [
        f"--config={CONFIG}:{name}",
        *(f"--config.{path}={value}" for path, value in knobs.items()),
    ]


def config_of(flags: list[str]) -> Any:
    """Load the data that a run with these flags trains on, and the config settled by it."""
    from bert_jax import config
    from bert_jax.training import data

    file, *changes = flags
    tree = config.load_file(file.removeprefix("--config="))
    for flag in changes:
        path, _, text = flag.removeprefix("--config.").partition("=")
        config.override(tree, path, text)
    return data.load_training_data(config.resolve(tree))


def rows_of(args: argparse.Namespace, task: str) -> int:
    """Count the rows of the training data; each window is a row."""
    return config_of(command(args, task, 0, steps=1)).source.examples_per_epoch


def train(flags: list[str], workdir: Path) -> list[dict[str, Any]]:
    """Run `bert-jax train` unless it has finished already, and return its lines of metrics."""
    if not (workdir / "report.html").exists():
        subprocess.run(
            [sys.executable, "-m", "bert_jax.cli", "train", *flags, f"--workdir={workdir}"],
            check=True,
            stdout=sys.stderr,
        )
    shutil.rmtree(workdir / "checkpoints", ignore_errors=True)  # 270 MB each, and not read again
    return read(workdir / "metrics.jsonl")


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file with a JSON object on each line; return an empty list where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, line: dict[str, Any]) -> None:
    """Append a line of JSON to a file, and print it without its lists."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(
        time.strftime("%H:%M:%S"),
        {k: v for k, v in line.items() if not isinstance(v, list)},
        flush=True,
    )


# --- (a) the same losses --------------------------------------------------------------------------

NO_DROPOUT = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "model.classifier_dropout": 0.0}


def losses(args: argparse.Namespace) -> None:
    """Write W/losses.jsonl: for each task both sides' losses over the same batches."""
    out = args.workdir / "losses.jsonl"
    for task in _missing(args.tasks, out):
        flags = command(args, task, 0, steps=LOSSES, batch_size=SMALL, **NO_DROPOUT)
        source = config_of(flags).source
        rows = [source.batch(step)["example_ids"][:, 0] for step in range(LOSSES)]
        order = args.workdir / f"order-{task}.npy"
        np.save(order, np.stack(rows))  # [50, 8]
        metrics = train(flags, args.workdir / "losses" / task)
        ours = [line["train/loss"] for line in metrics if "train/loss" in line]
        options = ["--data", args.data, "--workdir", args.workdir, "--tasks", task, "--seeds", "0"]
        options += ["--results", "losses-theirs.jsonl", "--dropout", "0", "--order", order]
        theirs_py = [args.torch, HERE / "theirs.py", "train", *options]
        subprocess.run(theirs_py, check=True, stdout=sys.stderr)
        lines = read(args.workdir / "losses-theirs.jsonl")
        theirs = next(line["losses"] for line in lines if line["task"] == task)
        worst = float(np.abs(np.subtract(ours, theirs)).max())
        both = {"last": theirs[-1], "ours": ours, "theirs": theirs}
        append(out, {"task": task, "worst": worst, **both})


def _missing(tasks: list[str], path: Path) -> list[str]:
    done = {line["task"] for line in read(path)}
    return [task for task in tasks if task not in done]


# --- (b) the same quality -------------------------------------------------------------------------


def ours(args: argparse.Namespace) -> None:
    """Write W/ours.jsonl: a line for each task and seed."""
    out = args.workdir / "ours.jsonl"
    done = {(line["task"], line["seed"]) for line in read(out)}
    for task in args.tasks:
        todo = [seed for seed in args.seeds if (task, seed) not in done]
        steps = updates(RECIPES[task], rows_of(args, task)) if todo else 0
        for seed in todo:
            began = time.perf_counter()
            flags = command(args, task, seed, steps=steps)
            lines = train(flags, args.workdir / "ours" / f"{task}-{seed}")
            seconds = round(time.perf_counter() - began, 1)
            row = {"task": task, "seed": seed, "updates": steps, "seconds": seconds}
            row |= {
                name.removeprefix("eval/validation/"): value
                for name, value in lines[-1].items()
                if name.startswith("eval/")
            }
            history = [line["train/loss"] for line in lines if "train/loss" in line]
            append(out, row | {"losses": history})


# --- (c) the time ---------------------------------------------------------------------------------

TIMED = 12  # updates


def times(args: argparse.Namespace) -> None:
    """Write W/times.jsonl: seconds of each side's updates.

    The sides take turns on the same batches, after everything is compiled.
    """
    import torch

    torch.set_num_threads(args.threads)
    out = args.workdir / "times.jsonl"
    for task in _missing(args.tasks, out):
        append(out, {"task": task, "threads": args.threads, **_time(args, task)})


def _time(args: argparse.Namespace, task: str) -> dict[str, Any]:
    import jax
    import theirs
    import torch

    from bert_jax.interop import initial
    from bert_jax.training.program import Program, mesh_for
    from bert_jax.training.step import compute_inputs

    recipe, folder = RECIPES[task], args.workdir / "heads" / f"{task}-0"
    given = config_of(command(args, task, 0, steps=1_000))
    config, size = given.config, given.tokenizer.size
    program = Program(config, given.tokenizer.special, size, mesh_for(config))
    layout = program.describe_state()["params"]
    draw = functools.partial(program.start.draw_params, 0)
    state = program.start.make_first_state(
        initial.start_from(config, layout, draw, given.tokenizer)
    )

    model = theirs.CLASSES[recipe.kind].from_pretrained(folder, dtype=torch.float32).train()
    tokenizer = theirs.transformers.AutoTokenizer.from_pretrained(folder)
    features = theirs.FEATURES[recipe.kind](
        theirs.read(args.data, task, "train"), tokenizer, recipe
    )
    optimizer = theirs.optimizer_of(model, recipe, 1_000)

    def ours_once(number: int) -> None:
        nonlocal state
        step_inputs = [compute_inputs(config, number)]
        state, metrics = program.update(state, given.source.batch(number), step_inputs)
        jax.block_until_ready((state, metrics))

    def theirs_once(number: int) -> None:
        rows = given.source.batch(number)["example_ids"][:, 0].tolist()
        theirs.update(model, *optimizer, [features[row] for row in rows], recipe)

    widths = [given.source.batch(number)["tokens"].shape[1] for number in range(TIMED)]
    for number in {
        width: number for number, width in enumerate(widths)
    }.values():  # each width once
        ours_once(number)
        theirs_once(number)
    seconds: dict[str, list[float]] = {
        f"{side}_{clock}": [] for clock in ("wall", "cpu") for side in ("ours", "theirs")
    }
    for number in range(TIMED):
        for side, once in (("ours", ours_once), ("theirs", theirs_once)):
            wall, cpu = time.perf_counter(), time.process_time()
            once(number)
            seconds[f"{side}_wall"].append(round(time.perf_counter() - wall, 4))
            seconds[f"{side}_cpu"].append(round(time.process_time() - cpu, 4))
    medians = {f"{name}_median": float(np.median(values)) for name, values in seconds.items()}
    ratios = {
        f"{c}_ratio": medians[f"theirs_{c}_median"] / medians[f"ours_{c}_median"]
        for c in ("wall", "cpu")
    }
    return {"tokens": BATCH * sum(widths) / TIMED, **ratios, **medians, **seconds}


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("losses", "ours", "times"))
    parser.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data")
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument(
        "--torch", default=sys.executable, help="a Python that has torch and transformers"
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="times: threads of torch; bert_jax takes all cores"
    )
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(RECIPES))
    parser.add_argument(
        "--seeds", type=lambda text: [int(s) for s in text.split(",")], default=list(SEEDS)
    )
    args = parser.parse_args()
    {"losses": losses, "ours": ours, "times": times}[args.command](args)


if __name__ == "__main__":
    main()
