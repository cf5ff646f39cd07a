"""Bugs that tests plant in the package, as `bugs.csv` has them: texts that become others."""

import csv
from pathlib import Path
from typing import NamedTuple


class Bug(NamedTuple):
    """Some texts of a file, each of which is there once, become others."""

    name: str
    file: str
    test: str  # which plants it
    changes: list[tuple[bytes, bytes]]

    def plant(self, source: bytes) -> bytes:
        """Return the text of the file with the bug in it."""
        for before, after in self.changes:
            if source.count(before) != 1:
                raise ValueError(f"{self.name}: {before.decode()!r} is not once in {self.file}")
            source = source.replace(before, after)
        return source


def read_bugs() -> dict[str, Bug]:
    """Return the bugs by name; rows of one name are one bug."""
    bugs: dict[str, Bug] = {}
    with Path(__file__).with_name("bugs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            bug = bugs.setdefault(row["name"], Bug(row["name"], row["file"], row["test"], []))
            bug.changes.append((row["before"].encode(), row["after"].encode()))
    return bugs
