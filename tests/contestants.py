"""Contestants that do next to nothing, for tests of the turns alone."""

import sys
import time
from pathlib import Path

from turns import Ready


def sleep(
    seconds: float, rest: float = 0.0, units: float = 1.0, file: str = "", name: str = ""
) -> Ready:
    """Sleep at every call, and `rest` after it; write the name into a file, if there is one."""

    def call() -> None:
        if file:
            with Path(file).open("a") as out:
                out.write(name)
            print("a library talks")
        time.sleep(seconds)

    return Ready(call, units, "things", {"seconds": seconds}, lambda: time.sleep(rest))


def dying() -> Ready:
    calls = iter(range(2))

    def call() -> None:
        if next(calls, None) is None:
            sys.exit("had enough")

    return Ready(call, 1.0, "things", {})
