"""Published claims about masking, and published tables to show next to a study's own.

Both come from published.toml next to this module.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple


class Claim(NamedTuple):
    """A published claim, its source, and what would confirm it."""

    text: str
    source: str
    setting: str
    numbers: str
    accepted: str  # there: what counts as the same result


class Published(NamedTuple):
    """A table of a paper: scores in per cent by row and column."""

    title: str
    source: str
    what: str  # the model and its training
    axis: str  # the knob that the rows are values of
    columns: list[str]
    rows: dict[str, list[float]]  # NaN if nothing was published


_DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CLAIMS = {name: Claim(**row) for name, row in _DATA["claims"].items()}
TABLES = {name: Published(**row) for name, row in _DATA["tables"].items()}
