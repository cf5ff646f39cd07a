"""`bert-jax predict`: one text a line in, one result out for each, in the same order.

On a terminal a result is text for people, into a pipe or a file a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import time
from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tqdm

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.errors import DataError
from bert_jax.system import allocator, opening
from bert_jax.system.arguments import Part

if TYPE_CHECKING:
    from bert_jax.predictors.base import Predictor
    from bert_jax.predictors.stream import Stream

logger = logging.getLogger(__name__)

EXAMPLE = "fill-mask --model=runs/demo --input=texts.txt"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Task(NamedTuple):
    """What a task does, and the shapes of its lines."""

    does: str
    takes: tuple[str, ...]  # lines of input
    gives: tuple[str, ...]  # lines of output


TASKS = {
    "fill-mask": Task(
        "fill each [MASK] with its likeliest tokens: one token a mask, since a masked model does "
        "not know the length of a gap",
        ("Paris is the [MASK] of France.", '{"text": "Paris is the [MASK] of France."}'),
        ('{"text": …, "masks": [[{"token": …, "probability": …}, …], …]}',),
    ),
    "nsp": Task(
        "tell how probable it is that the second text of a pair follows the first",
        ("He went out.<tab>It rained.", '{"text": "He went out.", "text_pair": "It rained."}'),
        ('{"text": …, "text_pair": …, "is_next": …}',),
    ),
    "classify": Task(
        "label a text or a pair, rate it, or choose among options, as the model was trained to",
        (
            "It rained all day.",
            '{"text": "It rained all day."}',
            '{"text": "It rains.", "text_pair": "The sun shines."}',
            '{"text": "It rained.", "options": ["We got wet.", "We stayed dry."]}',
        ),
        ('{"text": …, "label": …, "probabilities": {"LABEL": …, …}}', '{"text": …, "value": …}'),
    ),
    "tag": Task(
        "label each word, and find the entities that the labels mark",
        (
            "Paris is in France .",
            '{"text": "Paris is in France ."}',
            '{"words": ["Paris", "is", "in", "France", "."]}',
        ),
        ('{"words": […], "labels": […]}',),
    ),
    "answer": Task(
        "find the answer to a question in a context",
        (
            "Where is Paris?<tab>Paris lies in France.",
            '{"question": "Where is Paris?", "context": "Paris lies in France."}',
        ),
        ('{"question": …, "answer": …, "start": …, "end": …, "score": …}',),
    ),
    "embed": Task(
        "make one vector of a text",
        ("Paris is the capital of France.", '{"text": "Paris is the capital of France."}'),
        ('{"text": …, "embedding": […]}',),
    ),
    "generate": Task(
        "go on with a text (a causal model), or fill its masks in rounds (a masked one)",
        ("Paris is", "Paris is the [MASK] of France.", '{"text": "Paris is"}'),
        ('{"text": …}', '{"text": …, "continuation": …, "stopped": …}'),
    ),
}


def part(name: str) -> Part:
    """Return what the --help of a task shows beside its flags."""
    task = TASKS[name]
    takes = "\n  ".join(("input, each line one of:", *task.takes))
    gives = "\n  ".join(("output into a pipe or a file, a line for each:", *task.gives))
    return Part(task.does, "--model=runs/demo --input=texts.txt", f"{takes}\n\n{gives}")


def flags(parser: cli.Parser) -> None:
    """Add the flags of the command."""
    parser.add_parts("task", {name: part(name) for name in TASKS})
    cli.checkpoint_flag(parser)
    lines = (
        f"texts or JSON lines, each of at most {knobs.TEXT:,} characters in {knobs.LINE:,} bytes"
    )
    parser.add_argument(
        "--input", type=cli.path, metavar="FILE", help=f"{lines}; standard input when left out"
    )
    cli.format_flag(parser)
    top = {
        "fill-mask": "tokens a mask (5)",
        "answer": "answers listed besides the chosen one (none)",
        "generate": "draw from the likeliest K (all)",
    }
    parser.add_for(top, "--top-k", type=cli.positive, metavar="K")
    pooling = "mean of the tokens, or the vector of [CLS] (the model's own, else mean)"
    parser.add_for({"embed": pooling}, "--pooling", choices=("mean", "cls"), default="")
    parser.add_for({"embed": "vectors of length 1"}, "--normalize", action="store_true")
    entities = "merge words labelled B-… and I-…"
    parser.add_for({"tag": entities}, "--entities", action="store_true")
    none = "allow no answer, and give it if its score is higher by more than this (the model's own)"
    parser.add_for({"answer": none}, "--no-answer-threshold", type=float, metavar="X")
    cli.generation_flags(parser, "generate")
    shown = "masked models: add what every round revealed"
    parser.add_for({"generate": shown}, "--show-steps", action="store_true", default=SUPPRESS)
    _flags_of_length(parser)
    bad = "a line that cannot be used ends the command, or is left out with a warning (fail; skip "
    bad += "where lines are typed at a prompt)"
    parser.add_argument("--on-bad-row", choices=("fail", "skip"), default=SUPPRESS, help=bad)
    parser.add_argument(
        "--batch-size", type=cli.rows, default=32, metavar="N", help="rows a step (%(default)s)"
    )


def _flags_of_length(parser: cli.Parser) -> None:
    ways = "a text too long for the model: refuse it, cut its end"
    long = {
        "fill-mask": f"{ways}, or look at it in windows (refuse)",
        "nsp": f"{ways} (refuse)",
        "classify": f"{ways} (the model's own, else cut)",
        "tag": f"{ways}, or look at it in windows (the model's own, else windows)",
        "answer": f"{ways}, or look at it in windows (the model's own, else windows)",
        "embed": f"{ways} (refuse)",
        "generate": "a text too long for the model is refused: it goes on at its end",
    }
    parser.add_for(long, "--long", choices=("refuse", "cut", "windows"), default="")
    own = "the model's own, or"
    stride = {
        "fill-mask": "of windows, in tokens (64, or half a window)",
        **dict.fromkeys(("tag", "answer"), f"of windows, in tokens ({own} 128)"),
    }
    parser.add_for(stride, "--stride", type=cli.positive, metavar="N")
    meaning = {
        "fill-mask": "what neighbouring windows share, or how far the next one begins (overlap)",
        **dict.fromkeys(("tag", "answer"), f"meaning of the stride ({own} step)"),
    }
    parser.add_for(meaning, "--stride-as", choices=("overlap", "step"), default="")


def main(call: cli.Call) -> None:
    """Run the command line."""
    allocator.retain()
    run(**vars(call.args))


def run(
    task: str,
    checkpoint: str,
    input: Path | None,
    tokenizer: str = "",
    format: str = "",
    **options: Any,
) -> None:
    """Print the results on standard output and the rate on standard error.

    Args:
      task: a row of TASKS.
      checkpoint: a run, or another project's model.
      input: file of texts; None is standard input, with a prompt if it is typed.
      tokenizer: the vocabulary of a model that has none.
      format: "json" lines, or "text" for people; empty is text on a terminal, else JSON.
      options: the fields of `predictors.base.Options`.
    """
    from bert_jax.interop import runs
    from bert_jax.predictors.base import Model, Options
    from bert_jax.predictors.stream import AHEAD, Stream, read

    hint = "give a file of texts, or leave --input out to read standard input"
    if input is not None:
        opening.check(input, DataError, hint)  # before the model is read
    typed = input is None and os.isatty(0) and sys.stderr.isatty()
    options = ({"on_bad_row": "skip"} if typed else {}) | options
    stream = Stream(Model(runs.open_run(checkpoint, tokenizer=tokenizer), Options(**options)), task)
    stdout: Any = sys.stdout
    with contextlib.suppress(AttributeError):  # of a stream that captures standard output
        stdout.reconfigure(encoding="utf-8", errors="replace")
    people = cli.for_people(format)
    with contextlib.ExitStack() as stack:
        descriptor = 0
        if input is not None:
            descriptor = stack.enter_context(opening.regular(input, DataError, hint)).fileno()
        # A bar would interleave with a prompt or with results.
        quiet = typed or not sys.stderr.isatty() or sys.stdout.isatty()
        bar = stack.enter_context(tqdm.tqdm(unit=" lines", disable=quiet, delay=2, leave=False))
        began = time.perf_counter()
        if typed:
            say(f"one a line, such as: {sample(stream.predictor)}\nCtrl-D ends\n{task}> ")
        try:
            for window in read(descriptor, stream.options.batch_size * AHEAD):
                above = not typed or len(window) > 1
                for result in stream.answers(window):
                    line = json.dumps(result, ensure_ascii=False)
                    print(readable(stream.predictor, result, above) if people else line)
                sys.stdout.flush()
                bar.update(len(window))
                if typed:
                    say(f"{task}> ")
        finally:
            sys.stdout.flush()  # the results before a bad line
            if typed:
                say("\n")
        bar.close()
        if not typed:
            summary(stream, time.perf_counter() - began, remarks=not people)


def say(text: str) -> None:
    """Write a prompt, which is no result."""
    print(text, end="", file=sys.stderr, flush=True)


def sample(predictor: Predictor) -> str:
    """Return a line that a predictor reads."""
    fields = json.loads(predictor.example).values()
    if len(predictor.plain) != len(fields):
        return predictor.example
    return "<tab>".join(" ".join(one) if isinstance(one, list) else one for one in fields)


def readable(predictor: Predictor, result: dict[str, Any], above: bool) -> str:
    """Write a result for people, below its input if that is to be shown `above`."""
    given = [result[key] for key in predictor.heading if key in result]
    heading = "  |  ".join(" ".join(one) if isinstance(one, list) else one for one in given)
    lines = [heading or "(no text)"] if above and given else []
    # A control character would move the cursor, or do worse.
    return CONTROL.sub(lambda c: f"\\x{ord(c[0]):02x}", "\n".join([*lines, predictor.text(result)]))


def summary(stream: Stream, seconds: float, remarks: bool = True) -> None:
    """Log the rate, and warn of anything unusual in the input."""
    tally = stream.tally
    rates = f"{tally.lines / seconds:.1f} lines/s, {tally.tokens / seconds:.0f} tokens/s"
    text = f"{tally.lines} {'line' if tally.lines == 1 else 'lines'}, {rates} with compilation"
    if tally.cut:
        text += f", {tally.cut} of them cut to {stream.predictor.limit} tokens"
    if tally.bad:
        text += f"; bad lines left out: {tally.bad}"
    logger.info(text)
    if not tally.lines:
        logger.warning("the input has no lines: nothing was asked")
        return
    for remark in stream.predictor.remarks() if remarks else []:
        logger.warning(remark)


if __name__ == "__main__":
    cli.main(["predict", *sys.argv[1:]])
