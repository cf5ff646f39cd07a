"""`bert-jax predict`: reads one text a line, and writes one result for each, in the same order.

On a terminal a result is text for people. In a pipe or a file it is a line of JSON.
"""

import contextlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.errors import DataError
from bert_jax.predictors import TASKS, options
from bert_jax.system import allocator, log, opening
from bert_jax.system.arguments import Part

if TYPE_CHECKING:  # --help does not wait for jax
    from bert_jax.predictors.base import Predictor
    from bert_jax.predictors.stream import Stream

logger = logging.getLogger(__name__)

EXAMPLE = "fill-mask --model=runs/demo --input=texts.txt"


def describe_task(name: str) -> Part:
    """Describe a task for --help: its purpose, and the forms of its lines."""
    task = TASKS[name]
    takes = "\n  ".join(("input, each line one of:", *task.takes))
    gives = "\n  ".join(("output into a pipe or a file, a line for each:", *task.gives))
    return Part(task.does, "--model=runs/demo --input=texts.txt", f"{takes}\n\n{gives}")


def add_flags(parser: cli.Parser) -> None:
    """Add the flags of the command."""
    parser.add_parts("task", {name: describe_task(name) for name in TASKS})
    cli.add_checkpoint_flag(parser)
    lines = (
        f"texts or JSON lines, each of at most {knobs.TEXT:,} characters in {knobs.LINE:,} bytes"
    )
    parser.add_argument(
        "--input", type=cli.read_path, metavar="FILE", help=f"{lines}; standard input when left out"
    )
    cli.add_format_flag(parser)
    cli.add_option_flags(parser, options.FIELDS)


def main(call: cli.Call) -> None:
    """Run the command line."""
    allocator.retain_memory()
    run(**vars(call.args))


def run(
    task: str,
    checkpoint: str,
    input: Path | None,
    tokenizer: str = "",
    format: str = "",
    **settings: Any,
) -> None:
    """Print the results on standard output, and a summary with the speed on standard error.

    Args:
      task: a row of TASKS.
      checkpoint: a run, or another project's model.
      input: a file of texts; None is standard input.
      tokenizer: the vocabulary of a model that has none.
      format: "json" for lines, or "text" for people; by default text on a terminal, else JSON.
      settings: the fields of `options.Options`.
    """
    import tqdm

    from bert_jax.interop import runs
    from bert_jax.predictors.base import AskedModel
    from bert_jax.predictors.stream import AHEAD, Stream, read_lines, warn_of_replaced

    hint = "give a file of texts, or leave --input out to read standard input"
    if input is not None:
        opening.check_file(input, DataError, hint)  # before the model is read
    typed = input is None and os.isatty(0) and sys.stderr.isatty()
    asked = options.Options(**settings)
    model = AskedModel(runs.open_run(checkpoint, tokenizer=tokenizer), asked)
    stream = Stream(model, task, typed)
    stdout: Any = sys.stdout
    with contextlib.suppress(AttributeError):  # of a stream that captures standard output
        stdout.reconfigure(encoding="utf-8", errors="replace")
    people, began = cli.prints_for_people(format), time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.callback(sys.stdout.flush)  # the results before a bad line
        stack.callback(write_prompt, "\n", typed)
        descriptor = 0
        if input is not None:
            descriptor = stack.enter_context(opening.open_regular(input, DataError, hint)).fileno()
        # A bar would interleave with a prompt or with results.
        quiet = typed or not sys.stderr.isatty() or sys.stdout.isatty()
        bar = stack.enter_context(tqdm.tqdm(unit=" lines", disable=quiet, delay=2, leave=False))
        write_prompt(f"for example {stream.predictor.example}; Ctrl-D ends\n{task}> ", typed)
        for window in read_lines(descriptor, asked.batch_size * AHEAD):
            for result in stream.answer(window):
                line = json.dumps(result, ensure_ascii=False)
                if people:
                    line = write_readable(stream.predictor, result, above=not typed)
                print(line)
            sys.stdout.flush()
            bar.update(len(window))
            write_prompt(f"{task}> ", typed)
    warn_of_replaced(stream.tally.replaced)
    if not typed:
        log_summary(stream, time.perf_counter() - began)


def write_prompt(text: str, typed: bool) -> None:
    """Write the prompt `text` to standard error if the user types the texts."""
    if typed:
        print(text, end="", file=sys.stderr, flush=True)


def write_readable(predictor: "Predictor", result: dict[str, Any], above: bool) -> str:
    """Format a result as text for people; with `above`, the text that was asked comes first."""
    heading = [result[key] for key in predictor.heading if key in result]
    given = "  |  ".join(" ".join(one) if isinstance(one, list) else one for one in heading)
    lines = [given or "(no text)"] if above and heading else []
    return log.show_controls("\n".join([*lines, predictor.format_result(result)]))


def log_summary(stream: "Stream", seconds: float) -> None:
    """Log the lines and the tokens a second, and how many lines were cut."""
    tally = stream.tally
    rates = f"{tally.lines / seconds:.1f} lines/s, {tally.tokens / seconds:.0f} tokens/s"
    text = f"{tally.lines} {'line' if tally.lines == 1 else 'lines'}, {rates} with compilation"
    if tally.cut:
        text += f", {tally.cut} of them cut to {stream.predictor.limit} tokens"
    logger.info(text)
    if not tally.lines:
        logger.warning("the input has no lines: nothing was asked")


if __name__ == "__main__":
    cli.main(["predict", *sys.argv[1:]])
