"""Measure how many rows a second the loader makes.

    python experiments/scale/loader.py --config=configs/pretrain.py:base [--batches=2048,4096] \\
      [--seconds=8] [--config.KNOB=VALUE ...]

Batches are taken as fast as they come, and thrown away. Tokens that are no text are padding and
special tokens. Rows a CPU second count the time of all threads together, whatever else the machine
does; rows a second are by the clock. The copy to the devices is not part of it.
"""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator

from bert_jax import cli
from bert_jax.batch import Batch
from bert_jax.data import pipeline, prepare


def main() -> None:
    """Print a row for each batch size."""
    argv, overrides = cli.split_overrides(sys.argv[1:])
    parser = cli.Parser()
    cli.add_config_flag(parser)
    parser.add_argument("--batches", default="2048,4096")
    parser.add_argument("--seconds", type=float, default=8.0)
    args = parser.strict(argv)
    config = cli.read_config(args.config, overrides)
    prepared = prepare.prepare_corpus(config)
    for size in map(int, args.batches.split(",")):
        sized = dataclasses.replace(config, batch_size=size)
        source = pipeline.TextStream(prepared, "train", sized)
        stream = pipeline.prefetch(source.batch, 0, sys.maxsize)
        with contextlib.closing(stream):
            _report(size, args.seconds, stream)


def _report(size: int, seconds: float, stream: Iterator[Batch]) -> None:
    shares = []
    for _ in range(8):  # the plan is made, pages come into memory, buffers fill
        shares.append((next(stream)["unit_ids"] >= 0).mean())
    begun, before, count = time.monotonic(), _processor(), 0
    while time.monotonic() - begun < seconds:
        next(stream)
        count += 1
    rows, clock, used = count * size, time.monotonic() - begun, _processor() - before
    print(
        f"{size:<8}{rows / clock:>10,.0f} rows a second{rows / used:>10,.0f} rows a CPU second"
        f"{sum(shares) / len(shares):>8.1%} of the tokens are text",
        flush=True,
    )


def _processor() -> float:
    """Return the CPU seconds of this process."""
    return time.process_time()


if __name__ == "__main__":
    main()
