"""A classifier on its own task and on named ones: scores are those of what `predict` answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.api import Model
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from tests import tasks, texts
from tests.net.rows import MODELS
from tests.suites.asking import score

pytestmark = pytest.mark.usefixtures("one_device")
SPLITS = {"train": 48, "dev": 12, "test": 10}
F1 = (("task.metrics", "('accuracy','f1','mcc')"),)


@pytest.fixture(scope="module")
def rows() -> dict[str, list[tuple[str, int]]]:
    """Sentences and labels of each split."""
    random = np.random.default_rng(0)
    return {
        split: [(" ".join(texts.document(random, 1)), i % 2) for i in range(count)]
        for split, count in SPLITS.items()
    }


@pytest.fixture(scope="module")
def root(rows, tmp_path_factory) -> Path:
    """A folder in GLUE's layout with SST-2 alone, whose test set has no labels."""
    root = tmp_path_factory.mktemp("glue")
    (root / "SST-2").mkdir()
    for split in ("train", "dev"):
        lines = [f"{text}\t{label}\n" for text, label in rows[split]]
        (root / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    lines = [f"{number}\t{text}\n" for number, (text, _) in enumerate(rows["test"])]
    (root / "SST-2" / "test.tsv").write_text("index\tsentence\n" + "".join(lines))
    return root


def with_head(run: runs.TrainedModel, head: dict[str, np.ndarray]) -> runs.TrainedModel:
    return dataclasses.replace(run, params={**run.params, "classify": {"logits": head}})


def predict_shares(run: runs.TrainedModel, rows: list[tuple[str, int]]) -> np.ndarray:
    """The probability of the second class [N], as `predict` has it."""
    found = Model(run).classify([text for text, _ in rows])
    return np.array([[*one["probabilities"].values()][1] for one in found])


@pytest.fixture(scope="module")
def trained(root, rows) -> runs.TrainedModel:
    """A model that says "positive" of about half of all sentences, and has SST-2 as its task."""
    run = runs.open_run(str(MODELS / "classify"))
    config = tasks.config(
        *("classify", f"files:{root}/SST-2/{{split}}.tsv", root),
        task__name="sst2",
        task__text="sentence",
        task__values="('0','1')",
        task__columns="()",
        objectives__classify__labels="('negative','positive')",
        evals__more__split="train",
    )
    run = run.replace_sections(task=config.task, evals=config.evals, objectives=config.objectives)
    shares = predict_shares(run, rows["train"])
    head = jax.tree.map(np.asarray, run.params["classify"]["logits"])
    middle = np.median(np.log(shares / (1 - shares)))
    bias = head["bias"] + np.array([middle, 0], np.float32)
    return with_head(run, head | {"bias": bias})


def compute_accuracy(run: runs.TrainedModel, rows: list[tuple[str, int]]) -> float:
    labels = np.array([label for _, label in rows])
    return float(np.mean((predict_shares(run, rows) > 0.5) == labels))


def test_task_scores_all_splits_or_one(trained, rows):
    found, _ = score(trained, "task")
    assert (found["examples"], found["more/examples"]) == (12, 48)
    assert found["accuracy"] == pytest.approx(compute_accuracy(trained, rows["dev"]))
    assert found["more/accuracy"] == pytest.approx(compute_accuracy(trained, rows["train"]))
    only, _ = score(trained, "sst2", split="train")
    assert (only["examples"], only["accuracy"]) == (48, found["more/accuracy"])
    assert only["majority_accuracy"] == 0.5


@pytest.mark.parametrize("names", [("positive", "negative"), ("LABEL_0", "LABEL_1")])
def test_task_order_of_classes_changes_no_score(root, trained, names):
    """Others' heads may have the classes the other way round, or no names for them."""
    head = trained.params["classify"]["logits"]
    often = head | {"bias": head["bias"] + np.array([0, 0.05], np.float32)}
    expected, _ = score(with_head(trained, often), "sst2", split="train", changes=F1)
    assert expected["f1"] != pytest.approx(expected["accuracy"])  # F1 differs by the class
    turned = {k: v[..., ::-1] for k, v in often.items()} if names[0] == "positive" else often
    run = with_head(trained, turned).replace_sections(
        objectives={"classify": knobs.Objective(1.0, names)}
    )
    options = {"split": "train", "source": f"files:{root}", "changes": F1}
    assert score(run, "sst2", **options)[0] == pytest.approx(expected)


def test_task_submission_is_as_the_server_takes_it(trained, rows, tmp_path):
    found, _ = score(trained, "sst2", submission=str(tmp_path / "glue"))
    assert found == {"test/examples": 10}
    said = predict_shares(trained, rows["test"]) > 0.5
    header, *lines = (tmp_path / "glue" / "SST-2.tsv").read_text().splitlines()
    assert header == "index\tprediction"
    assert lines == [f"{number}\t{int(label)}" for number, label in enumerate(said)]
    with pytest.raises(ConfigError, match="rows that a server asks for"):
        score(trained, "sst2", submission=str(tmp_path), limit=3)


def test_task_scores_all_rows_of_an_unseen_file(root, trained, tmp_path):
    """Nothing is held back from training, as of a single file of the run's own."""
    file = tmp_path / "own.tsv"
    file.write_bytes((root / "SST-2" / "dev.tsv").read_bytes())
    assert score(trained, "sst2", source=f"files:{file}")[0]["examples"] == 12
