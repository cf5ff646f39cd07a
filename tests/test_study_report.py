"""The rows of a study's results, held against its files by hand."""

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
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import collect
from tests import study_workdir
from tests.study_workdir import SIZES, build, masking_rate

ONE_SIZE = {"2 x 64": SIZES["2 x 64"]}
ONE_CELL = masking_rate(rates=(0.15,), sizes=ONE_SIZE, seeds=(0,))


def states(cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed", ("2 x 64", "80 %", 2): "diverged"}.get(where, "done")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> StudyFolder:
    """Four rates, two sizes, three seeds; one cell failed and one diverged."""
    study = masking_rate(rates=(0.05, 0.15, 0.4, 0.8))
    return build(tmp_path_factory.mktemp("study"), study, states, examples=40, lines=20)


def metric(place: StudyFolder, cell: str, name: str, key: str) -> float:
    return json.loads(place.result(cell, name).read_text())["metrics"][key]


def cells(place: StudyFolder) -> dict[tuple[str, str, int], str]:
    """Ids by size, rate and seed, from study.json alone."""
    found = {}
    for cell in place.cells():
        found[cell.labels["size"], cell.labels["masking.rate"], cell.seed] = cell.id
    return found


def test_every_cell_has_a_row(place):
    results.read_results(place)
    text = place.csv.read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["cell"] for row in rows] == list(place.read_study()["cells"])
    by_cell = {row["cell"]: row for row in rows}
    for (size, rate, seed), one in cells(place).items():
        row = by_cell[one]
        assert (row["size"], row["masking.rate"], row["seed"]) == (size, rate, str(seed))
        assert float(row["masking.rate.value"]) == float(rate.removesuffix(" %")) / 100
        assert row["steps"] == "2000"
        if row["state"] == "done":
            steps_tokens = 2_000 * 32 * 64
            assert float(row["tokens"]) == steps_tokens
            assert float(row["predictions"]) == pytest.approx(
                steps_tokens * float(row["masking.rate.value"])
            )
            assert float(row["validation/mlm_loss"]) == metric(place, one, "validation", "mlm_loss")
            assert float(row["blimp/field/syntax"]) == metric(place, one, "blimp", "field/syntax")
        else:
            assert row["validation/mlm_loss"] == ""
    holes = {row["state"]: row for row in rows if row["state"] != "done"}
    assert holes.keys() == {"failed", "diverged"}
    assert holes["failed"]["error"] == "training: XlaRuntimeError: out of <memory>"
    assert holes["failed"]["step"] == "1000"
    assert holes["diverged"]["error"].startswith("5 updates")
    names = next(csv.reader(text.splitlines()))
    assert names[:2] == ["cell", "state"]
    assert names.index("evaluated") + 1 == names.index("validation/examples")
    assert not list(place.workdir.glob("*.tmp"))


def test_columns_stay_where_they_are_while_the_study_runs(tmp_path):
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE)
    place = build(
        tmp_path, study, lambda c: "untouched" if c.seed else "done", examples=10, lines=4
    )
    results.read_results(place)
    before = place.csv.read_text().splitlines()
    assert [row.split(",")[1] for row in before[1:]].count("waiting") == 4
    build(tmp_path, study, examples=10, lines=4)
    results.read_results(place)
    assert place.csv.read_text().splitlines()[0] == before[0]


def test_a_result_of_another_evaluation_is_none(tmp_path):
    place = build(tmp_path, ONE_CELL, examples=10, lines=4)
    entry = place.cells()[0]
    path = place.result(entry.id, "validation")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spec": "of an earlier one"}))
    found = results.read_results(place)[0]
    assert not any(name.startswith("validation/") for name in found.metrics)
    assert any(name.startswith("blimp/") for name in found.metrics)


def test_an_evaluation_that_came_to_nothing_is_told(tmp_path):
    place = build(tmp_path, ONE_CELL, examples=10, lines=4)
    place.write_result(place.cells()[0], "pos", {}, 1.0, {}, error="the loss is <nan>")
    assert results.read_results(place)[0].errors == {"pos": "the loss is <nan>"}


@pytest.mark.parametrize("step", [0, 1, 7, 50, 100])
def test_predictions_under_a_schedule_are_added_up_step_by_step(step):
    tree = study_workdir.base()
    tree.steps = 100
    tree.optim.warmup_steps = 0
    tree.masking.update({"rate": 0.3, "phases": ((1.0, 0.1, "linear"),)})
    resolved = config.resolve(tree)
    by_hand = math.fsum(32 * 64 * rates.rate_at(resolved.masking, one, 100) for one in range(step))
    assert collect.clock("predictions", resolved, 4_000)(step) == pytest.approx(by_hand)
    assert collect.clock("tokens", resolved, 4_000)(step) == step * 32 * 64


def test_flops_are_those_of_the_vocabulary_there_is(tmp_path):
    """Of a cell that has begun its own size counts, before that the one its budget was spent with;
    never the wish.
    """
    base = study_workdir.base()
    base.tokenizer.vocab_size = 30_522
    study = masking_rate((0.15, 0.4), ONE_SIZE, (0,), base=base)
    place = build(tmp_path / "w", study, lambda cell: "untouched")
    cells = [dataclasses.replace(cell, vocabulary=2_000) for cell in definition.expand(study)]
    place.write_study({"name": "x"}, [dataclasses.replace(cell, evaluations={}) for cell in cells])
    place.cell(cells[0].id).mkdir()
    (place.cell(cells[0].id) / "environment.json").write_text(json.dumps({"vocabulary": 1_000}))
    for one, cell, size in zip(results.read_results(place), cells, (1_000, 2_000), strict=True):
        wanted = costs.flops_per_step(cell.config, size)
        assert one.spent("flops", 7) == pytest.approx(7 * wanted)
        assert one.clock("flops")(7) == one.spent("flops", 7)
