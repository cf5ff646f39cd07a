"""Reports of committed studies have the frozen numbers."""

# ruff: noqa: RUF001 (the report writes minus signs and dashes)

import pytest

from tests.marks import mark_slow
from tests.net import golden, report_rows
from tests.net.rows import TOLERANCE
from tests.net.train_rows import ROOT

FROZEN = golden.read("study")


@pytest.mark.parametrize("name", mark_slow(report_rows.STUDIES, report_rows.QUICK))
def test_report_has_the_frozen_numbers(name, tmp_path):
    """The table of differences is the committed one, too."""
    found = report_rows.measure(name, tmp_path)
    assert golden.find_differences(FROZEN[name], found, TOLERANCE) == []
    folders = (ROOT / "experiments" / name, tmp_path / name)
    committed, written = (report_rows.read_table(place / "differences.csv") for place in folders)
    assert golden.find_differences(committed, written, TOLERANCE) == []


def test_summary_is_read_by_tables_and_headings():
    text = """# name

Best by 0.5 nats (−0.25 to 1,000).

## By rate

| rate | loss | minus 15 % |
|---|---:|---:|
| 15 % | 1.5 ± 0.25 | |
| **40 %** | – (0 of 3) | **−0.5** (−1 to 2e-3) |

It is underpowered; once replicated, once not replicated.

## Conditions

- 17 cells
"""
    assert report_rows.read_summary(text) == {
        "name: text": {"numbers": [-0.25, 0.5, 1000.0]},
        "By rate: rate": {
            "15 %": [[1.5, 0.25], []],
            "40 %": [[0.0, 3.0], [-0.5, -1.0, 0.002, "*"]],
        },
        "By rate: text": {"numbers": [], "not replicated": 1, "replicated": 1, "underpowered": 1},
    }
