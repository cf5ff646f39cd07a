"""Contestants that do next to nothing, for tests of the turns alone."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from turns import Ready


def sleep(seconds: float, units: float = 1.0) -> Ready:
    return Ready(lambda: time.sleep(seconds), units, "things", {"seconds": seconds})


def note(file: str, name: str) -> Ready:
    """Writes its name at every call."""

    def call() -> None:
        with Path(file).open("a") as out:
            out.write(name)
        print("a library talks")
        time.sleep(0.02)

    return Ready(call, 1.0, "things", {})


def tidy(file: str) -> Ready:
    """Takes long to put things back, which is not timed."""

    def after() -> None:
        time.sleep(0.05)
        with Path(file).open("a") as out:
            out.write("t")

    return Ready(lambda: None, 1.0, "things", {}, after)


def dying() -> Ready:
    calls = iter(range(2))

    def call() -> None:
        if next(calls, None) is None:
            sys.exit("had enough")

    return Ready(call, 1.0, "things", {})
