"""The logger `bert_jax`: progress and warnings, by default on standard error.

A module of the package logs to `logging.getLogger(__name__)`: progress with `info`, and trouble
with `warning`. A program that uses the package as a library configures the logger like any other,
for example `logging.getLogger("bert_jax").setLevel(logging.WARNING)` for no progress.
"""

import contextlib
import logging
import re
import sys

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PREFIXES = {logging.WARNING: "warning: ", logging.ERROR: "error: "}


def show_controls(text: str) -> str:
    """Replace control characters, which could move a terminal's cursor, by their codes as text."""
    return CONTROL.sub(lambda c: f"\\x{ord(c[0]):02x}", text)


class StandardError(logging.Handler):
    """A handler that writes to the current `sys.stderr`, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; an error of the stream ends no run, as its reader may end earlier."""
        text = PREFIXES.get(record.levelno, "") + show_controls(self.format(record))
        bars = sys.modules.get("tqdm") if sys.stderr.isatty() else None
        with contextlib.suppress(OSError):
            if bars is not None:
                bars.tqdm.write(text, file=sys.stderr)
            else:
                print(text, file=sys.stderr, flush=True)


def log_line(text: str) -> None:
    """Log a line; it is logged as a warning if it begins with "warning: "."""
    prefix = PREFIXES[logging.WARNING]
    level = logging.WARNING if text.startswith(prefix) else logging.INFO
    logging.getLogger("bert_jax").log(level, text.removeprefix(prefix))


def install_log() -> None:
    """Install the handler, unless the logger has one already."""
    logger = logging.getLogger("bert_jax")
    if logger.handlers:
        return
    logger.addHandler(StandardError())
    logger.propagate = False  # or a program that configures the root logger gets each line twice
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
