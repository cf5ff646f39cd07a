"""A known effect passes through the whole chain: training, evaluation, tables, verdict and page."""

import csv
import html
import re
import statistics

import numpy as np
import pytest

from bert_jax.studies import tables
from tests import texts

RATES = ("0.005", "1e-07")  # the second one leaves the model as it was initialised
VERDICT = "validation MLM loss: 0 significant gains, 1 significant loss."


def find_mean(rows: list[dict[str, str]], rate: str) -> float:
    """Return the mean held-out loss of the cells with a learning rate."""
    losses = [row["validation/mlm_loss"] for row in rows if row["optim.learning_rate"] == rate]
    return statistics.mean(map(float, losses))


@pytest.mark.slow
def test_useless_rate_is_found_significantly_worse(tmp_path):
    """All cells of three seeds are scored on the same examples, with as many masks in each."""
    base, workdir = texts.config_file(tmp_path), tmp_path / "study"
    words = ["study", "sweep", f"--config={base}", f"--workdir={workdir}", "--seeds=3", "--jobs=1"]
    words += ["--axis", f"optim.learning_rate={','.join(RATES)}", "--config.steps=60"]
    code, answer, err = texts.run(*words, timeout=1200)
    assert code == 0, err
    rows = tables.read_csv(workdir / "results.csv")
    good, useless = (find_mean(rows, rate) for rate in RATES)
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
    examples = np.load(workdir / "examples.npz")
    for ending in ("validation/examples", "validation/mlm_loss.count"):
        arrays = [examples[name] for name in examples if name.endswith(ending)]
        assert len(arrays) == 6
        assert all(np.array_equal(array, arrays[0]) for array in arrays)
