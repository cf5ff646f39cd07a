"""`bert-jax knobs`: all knobs as they are declared, found by section and name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax import cli, knobs
from bert_jax.config import table

PAGE = Path(__file__).resolve().parents[2] / "configs" / "KNOBS.md"
KNOBS = table.list_knobs()


def test_page_is_current_and_has_every_knob(capsys):
    assert cli.execute(["knobs", "--markdown"]) == 0
    page = PAGE.read_text()
    assert capsys.readouterr().out == page, "bert-jax knobs --markdown > configs/KNOBS.md"
    rows = [line for line in page.splitlines() if line.startswith("|`")]
    assert len(rows) == len(KNOBS)
    assert "|`rate`|`0.15`|0..1|share of eligible tokens selected|masking.draw=fixed|" in rows
    assert len(page.split()) <= 2_400


def test_write_default_is_read_as_the_default():
    for path, knob in KNOBS.items():
        read = table.read_text(path, knobs.write_default(knob.default))
        assert table.check_value(knob, read, path) == knob.default


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("loader", ["loader.prefetch"]),
        ("evals", [path for path in KNOBS if path.startswith("evals.")]),
        ("masking.rate", ["masking.rate"]),
        ("evals.mine.rate", ["evals.*.rate"]),
        ("rate", ["masking.rate", "evals.*.rate"]),
        ("seed", ["seed", "evals.*.seed"]),
        ("", [*KNOBS]),
    ],
)
def test_find_knobs_takes_sections_and_names(name, paths):
    assert [*knobs.find_knobs(name)] == paths
