"""The results of a study's cells and the budgets that they spent, by hand."""

from __future__ import annotations

import csv
import dataclasses
import json
import math

import pytest

from bert_jax import config
from bert_jax.config import costs
from bert_jax.masking import rates
from bert_jax.studies import definition, results
from bert_jax.studies.report import collect
from tests import study_workdir
from tests.study_workdir import SIZES, build, masking_rate

ONE_SIZE = {"2 x 64": SIZES["2 x 64"]}
TOKENS = 2_000 * 32 * 64  # of a cell
ERRORS = {"failed": "training: XlaRuntimeError: out of <memory>", "diverged": "5 updates"}


def test_results_csv_has_what_the_files_say(tmp_path):
    def state(cell) -> str:
        return {("15 %", 1): "failed", ("40 %", 0): "diverged"}.get(
            (cell.labels["masking.rate"], cell.seed), "done"
        )

    place = build(tmp_path, masking_rate((0.15, 0.4), seeds=(0, 1)), state, examples=20, lines=4)
    results.read_results(place)
    with place.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, cell in zip(rows, place.cells(), strict=True):
        assert (row["cell"], row["seed"], row["state"]) == (cell.id, str(cell.seed), state(cell))
        assert row["size"] == cell.labels["size"]
        assert float(row["masking.rate.value"]) == cell.config.masking.rate
        if row["state"] != "done":
            assert row["validation/mlm_loss"] == ""
            assert row["error"].startswith(ERRORS[row["state"]])
            continue
        assert float(row["tokens"]) == TOKENS
        assert float(row["predictions"]) == pytest.approx(TOKENS * cell.config.masking.rate)
        for name in ("validation", "blimp"):
            metrics = json.loads(place.result(cell.id, name).read_text())["metrics"]
            shown = {key: float(row[f"{name}/{key}"]) for key in metrics}
            assert shown == pytest.approx(metrics)


@pytest.mark.parametrize("step", [0, 1, 50, 100])
def test_predictions_of_a_schedule_are_its_sum(step):
    tree = study_workdir.base()
    tree.steps = 100
    tree.optim.warmup_steps = 0
    tree.masking.update({"rate": 0.3, "phases": ((1.0, 0.1, "linear"),)})
    resolved = config.resolve(tree)
    by_hand = math.fsum(32 * 64 * rates.rate_at(resolved.masking, one, 100) for one in range(step))
    assert collect.make_clock("predictions", resolved, 4_000)(step) == pytest.approx(by_hand)
    assert collect.make_clock("tokens", resolved, 4_000)(step) == step * 32 * 64


def test_flops_are_counted_with_the_real_vocabulary(tmp_path):
    """A cell that has begun knows its size; before, it is that which its budget was spent with."""
    base = study_workdir.base()
    base.tokenizer.vocab_size = 30_522
    study = masking_rate((0.15, 0.4), ONE_SIZE, (0,), base=base)
    place = build(tmp_path / "w", study, lambda cell: "untouched")
    cells = [dataclasses.replace(cell, vocabulary=2_000) for cell in definition.expand(study)]
    place.write_study({"name": "x"}, [dataclasses.replace(cell, evaluations={}) for cell in cells])
    place.cell(cells[0].id).mkdir()
    (place.cell(cells[0].id) / "environment.json").write_text(json.dumps({"vocabulary": 1_000}))
    for one, cell, size in zip(results.read_results(place), cells, (1_000, 2_000), strict=True):
        assert one.spent("flops", 7) == pytest.approx(7 * costs.flops_per_step(cell.config, size))
