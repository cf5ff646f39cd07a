"""A known effect passes through the whole chain: training, evaluation, tables, verdict and page."""

from __future__ import annotations

import csv
import html
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from tests import texts

pytestmark = pytest.mark.slow
RATES = ("0.005", "1e-07")  # the second one leaves the model as it was initialised
VERDICT = "validation MLM loss: 0 significant gains, 1 significant loss."


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> tuple[Path, str]:
    """The workdir of a study of both learning rates with three seeds, and its printed answer."""
    folder = tmp_path_factory.mktemp("planted")
    base, workdir = texts.config_file(folder), folder / "study"
    words = ["study", "sweep", f"--config={base}", f"--workdir={workdir}", "--seeds=3", "--jobs=1"]
    words += ["--axis", f"optim.learning_rate={','.join(RATES)}", "--config.steps=60"]
    code, out, err = texts.run(*words, timeout=1200)
    assert code == 0, err
    return workdir, out


def read_losses(workdir: Path) -> dict[str, list[float]]:
    """Read the held-out losses of a study by learning rate, in the order of seeds."""
    with (workdir / "results.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["seed"]))
    losses: dict[str, list[float]] = {rate: [] for rate in RATES}
    for row in rows:
        losses[row["optim.learning_rate"]].append(float(row["validation/mlm_loss"]))
    return losses


def test_useless_rate_is_found_significantly_worse(sweep):
    workdir, _ = sweep
    good, useless = read_losses(workdir).values()
    gap = statistics.mean(useless) - statistics.mean(good)
    assert gap > 0.5
    with (workdir / "differences.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["mean"]) == pytest.approx(gap, rel=1e-5)
    assert 0 < float(row["low"]) < gap < float(row["high"])


def test_page_and_summary_say_what_the_tables_hold(sweep):
    workdir, answer = sweep
    page = html.unescape(re.sub(r"<[^>]+>", "", (workdir / "report.html").read_text()))
    summary = (workdir / "summary.md").read_text()
    for sentence in (answer.splitlines()[0], VERDICT):
        assert all(sentence in text for text in (answer, summary, page))
    for losses in read_losses(workdir).values():
        assert f"{statistics.mean(losses):.3f} ±" in page


def test_all_cells_are_scored_on_the_same_examples(sweep):
    """The digest of examples and masks, and the number of predictions of each example."""
    tables = np.load(sweep[0] / "examples.npz")
    for ending in ("validation/examples", "validation/mlm_loss.count"):
        arrays = [tables[name] for name in tables if name.endswith(ending)]
        assert len(arrays) == 6
        assert all(np.array_equal(array, arrays[0]) for array in arrays)
