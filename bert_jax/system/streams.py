"""Standard input, output and error of a command: closed, full or read no further."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from bert_jax.errors import ConfigError


class _Output(io.FileIO):
    """Standard output that remembers why it could not be written: argparse, for one, keeps that to itself."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write what there is room for."""
        try:
            return super().write(data) or 0
        except OSError as error:
            self.error = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # the rest is given up
            raise


_output: _Output | None = None


def ready() -> None:
    """Refuse to compute what could not be printed; without the other two there is nothing to read and nobody to tell.

    A file that is opened later must not take the place of one of the three.
    """
    global _output
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for good, as those below
    closed = sys.stdout is None
    if closed:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if closed:
        raise ConfigError("standard output is closed", "redirect it: > FILE, or > /dev/null")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        was, _output = sys.stdout, _Output(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_output), was.encoding, was.errors, line_buffering=was.line_buffering
        )


def unwritten() -> OSError | None:
    """Why what was printed could not be written, if that is so."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    return _output.error if _output else None
