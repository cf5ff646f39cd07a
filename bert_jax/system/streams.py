"""Standard input, output and error of a command, which may be closed, full or a broken pipe."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from bert_jax.errors import ConfigError


class _Output(io.FileIO):
    """Standard output that remembers the error of a failed write, which argparse swallows."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write, or remember the error and discard all further output."""
        try:
            return super().write(data) or 0
        except OSError as error:
            self.error = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise


_output: _Output | None = None


def ready() -> None:
    """Refuse a closed standard output; open /dev/null in place of closed input and error.

    Otherwise a file that is opened later would get the descriptor of one of the three.
    """
    global _output
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for good
    closed = sys.stdout is None
    if closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for good
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for good
    if closed:
        raise ConfigError("standard output is closed", "redirect it: > FILE, or > /dev/null")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        old, _output = sys.stdout, _Output(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_output), old.encoding, old.errors, line_buffering=old.line_buffering
        )


def unwritten() -> OSError | None:
    """Return the error of a write to standard output that failed, if one did."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    return _output.error if _output else None
