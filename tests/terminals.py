"""A terminal on which somebody types, for tests of what a person sees."""

import contextlib
import os
import pty
import sys
import threading
import time
from pathlib import Path

import pytest


@contextlib.contextmanager
def typing(lines: list[str]):
    """Type a line into a terminal after each prompt, and Ctrl-D at the end.

    Yields the terminal's descriptor, and a list that holds what was shown when it is closed.
    """
    ours, theirs = pty.openpty()
    shown: list[str] = []
    waiting = [line.encode() for line in lines]

    def person() -> None:
        seen, end = b"", time.monotonic() + 120
        with contextlib.suppress(OSError):  # the last descriptor of the terminal is closed
            while data := os.read(ours, 4096):
                seen += data
                if data.endswith(b"> ") or time.monotonic() > end:
                    os.write(ours, waiting.pop(0) if waiting else b"\x04")
        shown.append(seen.decode().replace("\r\n", "\n"))

    thread = threading.Thread(target=person)
    thread.start()
    try:
        yield theirs, shown
    finally:
        os.close(theirs)
        thread.join()
        os.close(ours)


@contextlib.contextmanager
def terminal(lines: list[str], output: Path | None = None):
    """Run the body on a terminal, where someone types; standard output may go to a file.

    Yields the list of `typing`.
    """
    with typing(lines) as (theirs, shown), pytest.MonkeyPatch.context() as patch:
        kept = os.dup(0)
        os.dup2(theirs, 0)
        with (
            os.fdopen(os.dup(theirs), "w", buffering=1) as screen,
            output.open("w") if output else os.fdopen(os.dup(theirs), "w") as out,
        ):
            patch.setattr(sys, "stderr", screen)
            patch.setattr(sys, "stdout", out)
            try:
                yield shown
            finally:
                os.dup2(kept, 0)
                os.close(kept)
