"""Mark the rows of a table of tests that `make test` leaves out."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_slow(rows: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return the rows as values of a test's parameters; rows that are not quick are slow.

    A tuple has a value for each of several parameters.
    """
    found = []
    for row in rows:
        values = row if isinstance(row, tuple) else (row,)
        found.append(pytest.param(*values, marks=() if row in quick else pytest.mark.slow))
    return found
