"""What the columns of the matrix share: a training row of the table is a test's parameter."""

import pytest

from tests.marks import mark_slow
from tests.net import golden
from tests.net.rows import ROWS
from tests.net.train_rows import Numbers

FROZEN = golden.read("training")


def rows(quick: tuple[str, ...]) -> pytest.MarkDecorator:
    """Give a test every row; those that are not quick are slow."""
    return pytest.mark.parametrize("name", mark_slow(ROWS, quick))


def choose(request: pytest.FixtureRequest, used: str) -> list[str]:
    """Return the rows of this file's tests of this session that use a fixture, or of one test."""
    own = [item for item in request.session.items if item.path == request.path]
    chosen = [item for item in own if used in (item.originalname, *item.fixturenames)]
    return sorted({item.callspec.params["name"] for item in chosen})


def differences(name: str, found: Numbers) -> list[str]:
    """Return what differs from the row's frozen numbers."""
    return golden.find_differences(FROZEN[name], found, ROWS[name].tolerance)
