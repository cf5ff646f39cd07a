"""Measure how many rows a second the loader makes, by its threads and processes.

    python experiments/scale/loader.py --config=configs/pretrain.py:base [--batches=2048,4096] \\
      [--seconds=8] [--config.KNOB=VALUE ...]

Batches are taken as fast as they come, and thrown away. Tokens that are no text are padding and
special tokens. Rows a CPU second count the time of all
threads and processes together, whatever else the machine does; rows a second are by the clock. The
copy to the devices is not part of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator

import psutil

from bert_jax import cli
from bert_jax.batch import Batch
from bert_jax.data.batches import pipeline
from bert_jax.data.text import prepare

LOADERS = ((1, 0), (2, 0), (4, 0), (1, 1), (1, 2), (1, 4))  # threads, workers


def main() -> None:
    """Print a row for each batch size and loader."""
    argv, overrides = cli.split_overrides(sys.argv[1:])
    parser = cli.Parser()
    cli.config_flag(parser)
    parser.add_argument("--batches", default="2048,4096")
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.strict(argv)
    config = cli.read_config(args.config, overrides)
    prepared = prepare.prepare(config)
    for size in map(int, args.batches.split(",")):
        sized = dataclasses.replace(config, batch_size=size)
        source = pipeline.Source(prepared, "train", sized)
        for threads, workers in LOADERS:
            settings = dataclasses.replace(config.loader, threads=threads, workers=workers)
            stream = pipeline.prefetch(source, 0, sys.maxsize, settings)
            with contextlib.closing(stream):
                _report(f"{size} threads={threads} workers={workers}", size, args.seconds, stream)


def _report(name: str, size: int, seconds: float, stream: Iterator[Batch]) -> None:
    shares = []
    for _ in range(8):  # plans are opened, pages come into memory, buffers fill
        shares.append((next(stream)["unit_ids"] >= 0).mean())
    begun, before, count = time.monotonic(), _processor(), 0
    while time.monotonic() - begun < seconds:
        next(stream)
        count += 1
    rows, clock, used = count * size, time.monotonic() - begun, _processor() - before
    print(
        f"{name:<28}{rows / clock:>10,.0f} rows a second{rows / used:>10,.0f} rows a CPU second"
        f"{sum(shares) / len(shares):>8.1%} of the tokens are text",
        flush=True,
    )


def _processor() -> float:
    """Return the CPU seconds of this process and those it has started."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


if __name__ == "__main__":
    main()
