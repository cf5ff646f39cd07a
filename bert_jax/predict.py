"""`bert-jax predict`: one text a line in, one JSON object a line out, in the same order."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from argparse import SUPPRESS, ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tqdm

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import allocator, opening

if TYPE_CHECKING:
    from bert_jax.predictors.stream import Stream

logger = logging.getLogger(__name__)

EXAMPLE = "fill-mask --model=runs/tiny --input=texts.txt"
OF_ROUNDS = ("steps", "order", "show_steps")  # flags that generate alone has


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    tasks = ("fill-mask", "nsp", "classify", "tag", "answer", "embed", "generate")
    note = "; fill-mask fills each [MASK] with one token: a masked model does not know the length"
    parser.add_argument("task", metavar="TASK", choices=tasks, help=f"{', '.join(tasks)}{note}")
    cli.checkpoint_flag(parser)
    lines = (
        f"texts or JSON lines, each of at most {knobs.TEXT:,} characters in {knobs.LINE:,} bytes"
    )
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help=f"{lines}; standard input when left out"
    )
    top = "fill-mask: tokens a mask (5); answer: answers listed besides the chosen one (none); "
    top += "generate: draw from the likeliest K (all)"
    parser.add_argument("--top-k", type=cli.positive, metavar="K", help=top)
    parser.add_argument(
        "--pooling", choices=("mean", "cls"), default="", help="embed (the model's own, else mean)"
    )
    parser.add_argument("--normalize", action="store_true", help="embed: vectors of length 1")
    parser.add_argument(
        "--entities", action="store_true", help="tag: merge words labelled B-… and I-…"
    )
    none = "answer: allow no answer, and give it if its score is higher by more than this (the "
    none += "model's own)"
    parser.add_argument("--no-answer-threshold", type=float, metavar="X", help=none)
    cli.generation_flags(parser)
    shown = "generate, masked models: add to each line what every round revealed"
    parser.add_argument("--show-steps", action="store_true", default=SUPPRESS, help=shown)
    too_long = (
        "a text too long for the model: refuse it (fill-mask, nsp, embed, generate), cut its end "
        "(classify), or look at it in windows (tag, answer; fill-mask has them too)"
    )
    parser.add_argument("--long", choices=("refuse", "cut", "windows"), default="", help=too_long)
    stride = "of windows, in tokens (fill-mask 64; tag, answer: the model's own, or 128)"
    parser.add_argument("--stride", type=cli.positive, metavar="N", help=stride)
    meaning = "meaning of the stride (fill-mask overlap; tag, answer: the model's own, or step)"
    parser.add_argument("--stride-as", choices=("overlap", "step"), default="", help=meaning)
    bad = "a line that cannot be used ends the command, or is left out with a warning (%(default)s)"
    parser.add_argument("--on-bad-row", choices=("fail", "skip"), default="fail", help=bad)
    parser.add_argument(
        "--batch-size", type=cli.positive, default=32, metavar="N", help="rows a step (%(default)s)"
    )


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = vars(call.args)
    if args["task"] != "generate" and (foreign := args.keys() & OF_ROUNDS):
        problem = f"predict {args['task']} has no flag --{min(foreign).replace('_', '-')}"
        raise ConfigError(problem, "predict generate has it")
    allocator.retain()
    run(**args)


def run(
    task: str, checkpoint: str, input: Path | None, tokenizer: str = "", **options: Any
) -> None:
    """Print JSON lines on standard output and the rate on standard error.

    `options` are the fields of `predictors.base.Options`.
    """
    from bert_jax.interop import runs
    from bert_jax.predictors.base import Model, Options
    from bert_jax.predictors.stream import AHEAD, Stream, read

    hint = "give a file of texts, or leave --input out to read standard input"
    if input is not None:
        opening.check(input, DataError, hint)  # before the model is read
    stream = Stream(Model(runs.open_run(checkpoint, tokenizer=tokenizer), Options(**options)), task)
    stdout: Any = sys.stdout
    with contextlib.suppress(AttributeError):  # of a stream that captures standard output
        stdout.reconfigure(encoding="utf-8", errors="replace")
    with contextlib.ExitStack() as stack:
        descriptor = 0
        if input is not None:
            descriptor = stack.enter_context(opening.regular(input, DataError, hint)).fileno()
        quiet = not sys.stderr.isatty() or sys.stdout.isatty()  # results and bar would interleave
        bar = stack.enter_context(tqdm.tqdm(unit=" lines", disable=quiet, delay=2, leave=False))
        began = time.perf_counter()
        try:
            for window in read(descriptor, stream.options.batch_size * AHEAD):
                for result in stream.answers(window):
                    print(json.dumps(result, ensure_ascii=False))
                sys.stdout.flush()
                bar.update(len(window))
        finally:
            sys.stdout.flush()  # the results before a bad line
        bar.close()
        summary(stream, time.perf_counter() - began)


def summary(stream: Stream, seconds: float) -> None:
    """Log the rate, and warn of anything unusual in the input."""
    tally = stream.tally
    rates = f"{tally.lines / seconds:.1f} lines/s, {tally.tokens / seconds:.0f} tokens/s"
    text = f"{tally.lines} lines, {rates} with compilation"
    if tally.cut:
        text += f", {tally.cut} of them cut to {stream.predictor.limit} tokens"
    if tally.bad:
        text += f"; bad lines left out: {tally.bad}"
    logger.info(text)
    if not tally.lines:
        logger.warning("the input has no lines: nothing was asked")
        return
    for remark in stream.predictor.remarks():
        logger.warning(remark)


if __name__ == "__main__":
    cli.main(["predict", *sys.argv[1:]])
