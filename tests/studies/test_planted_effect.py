"""A known effect passes through the whole chain: training, evaluation, tables, verdict and page."""

import csv
import html
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from tests import texts

RATES = ("0.005", "1e-07")  # the second one leaves the model as it was initialised
VERDICT = "validation MLM loss: 0 significant gains, 1 significant loss."


def read_losses(workdir: Path) -> dict[str, list[float]]:
    """Read the held-out losses of a study by learning rate, in the order of seeds."""
    with (workdir / "results.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["seed"]))
    losses: dict[str, list[float]] = {rate: [] for rate in RATES}
    for row in rows:
        losses[row["optim.learning_rate"]].append(float(row["validation/mlm_loss"]))
    return losses


@pytest.mark.slow
def test_useless_rate_is_found_significantly_worse(tmp_path):
    """All cells of three seeds are scored on the same examples, with as many masks in each."""
    base, workdir = texts.config_file(tmp_path), tmp_path / "study"
    words = ["study", "sweep", f"--config={base}", f"--workdir={workdir}", "--seeds=3", "--jobs=1"]
    words += ["--axis", f"optim.learning_rate={','.join(RATES)}", "--config.steps=60"]
    code, answer, err = texts.run(*words, timeout=1200)
    assert code == 0, err
    good, useless = map(statistics.mean, read_losses(workdir).values())
    gap = useless - good
    assert gap > 0.5
    with (workdir / "differences.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["mean"]) == pytest.approx(gap, rel=1e-5)
    assert 0 < float(row["low"]) < gap < float(row["high"])
    page = html.unescape(re.sub(r"<[^>]+>", "", (workdir / "report.html").read_text()))
    summary = (workdir / "summary.md").read_text()
    for sentence in (answer.splitlines()[0], VERDICT):
        assert all(sentence in text for text in (answer, summary, page))
    for mean in (good, useless):
        assert f"{mean:.3f} ±" in page
    tables = np.load(workdir / "examples.npz")
    for ending in ("validation/examples", "validation/mlm_loss.count"):
        arrays = [tables[name] for name in tables if name.endswith(ending)]
        assert len(arrays) == 6
        assert all(np.array_equal(array, arrays[0]) for array in arrays)
