"""The logger `bert_jax`: progress and warnings, on standard error unless a program redirects it.

A module of the package logs to `logging.getLogger(__name__)`: progress with `info`, what may be
unwanted with `warning`. Importing the package installs the handler. A program that uses the package
as a library changes the logger like any other:

    logging.getLogger("bert_jax").setLevel(logging.WARNING)  # no progress; CRITICAL: nothing

    logger = logging.getLogger("bert_jax")  # to the handlers of the program itself
    logger.handlers.clear()
    logger.propagate = True
"""

from __future__ import annotations

import logging
import sys

PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}


class StandardError(logging.Handler):
    """A handler that writes to what `sys.stderr` is when a line comes, above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; an error of the stream passes, as that of `print` does."""
        text = PREFIXES.get(record.levelno, "") + self.format(record)
        bars = sys.modules.get("tqdm") if sys.stderr.isatty() else None
        if bars is not None:
            bars.tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


def line(text: str) -> None:
    """Log a line that a callee passes on; one that begins with "warning: " as a warning."""
    logger = logging.getLogger("bert_jax")
    prefix = PREFIXES[logging.WARNING]
    if text.startswith(prefix):
        logger.warning(text.removeprefix(prefix))
    else:
        logger.info(text)


def install() -> None:
    """Install the handler; leave alone what a program has already set on the logger."""
    logger = logging.getLogger("bert_jax")
    if logger.handlers:
        return
    logger.addHandler(StandardError())
    logger.propagate = False  # or a program that configures the root logger gets each line twice
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
