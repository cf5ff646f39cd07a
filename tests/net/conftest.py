"""The folder in which the net asks its questions."""

import contextlib
from pathlib import Path

import pytest

from tests.net.train_rows import write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the rows read."""
    place = tmp_path_factory.mktemp("net") / "rows"
    write_folder(place)
    return place


@pytest.fixture(scope="module")
def inputs(folder: Path):
    """Work in that folder."""
    with contextlib.chdir(folder):
        yield
