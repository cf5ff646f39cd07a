"""Fine-tuned checkpoints on tasks, by the command line's function: their own, a named one, all of
GLUE that fits.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from bert_jax import evaluate, suites, train
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from tests import tasks, texts

WORDS = {
    "negative": ["the fan is loud", "the update fails"],
    "positive": ["I am glad", "the screen is right"],
}


def sentences(count: int, seed: int) -> list[tuple[str, int]]:
    random = np.random.default_rng(seed)
    return [
        (f"{random.choice(WORDS[name])} {i}", k)
        for i in range(count)
        for k, name in enumerate(WORDS)
    ]


@pytest.fixture(scope="module", autouse=True)
def one_device():
    with texts.one_device():
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder in GLUE's layout with SST-2 alone, whose test set has no labels."""
    root = tmp_path_factory.mktemp("glue")
    (root / "SST-2").mkdir()
    for seed, (split, count) in enumerate({"train": 24, "dev": 6}.items()):
        rows = "".join(f"{text}\t{label}\n" for text, label in sentences(count, seed))
        (root / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    rows = "".join(f"{i}\t{text}\n" for i, (text, _) in enumerate(sentences(5, 9)))
    (root / "SST-2" / "test.tsv").write_text("index\tsentence\n" + rows)
    return root


@pytest.fixture(scope="module")
def trained(root):
    config = tasks.config(
        *("classify", f"files:{root}/SST-2/{{split}}.tsv", root),
        task__name="sst2",
        task__text="sentence",
        task__values="('0','1')",
        task__columns="()",
        objectives__classify__labels="('negative','positive')",
        evals__more__split="train",
        epochs=6,
    )
    train.run(config, root / "run", command=[])
    return root / "run"


def test_task_scores_all_splits_or_one(trained, capsys):
    evaluate.run(str(trained), "", None, None)
    found = json.loads(capsys.readouterr().out)["task"]
    assert (found["examples"], found["more/examples"]) == (12, 48)
    assert found["more/accuracy"] > 0.8
    evaluate.run(str(trained), "sst2", None, None, split="train")
    only = json.loads(capsys.readouterr().out)["sst2"]
    assert only["examples"] == 48
    assert only["accuracy"] == found["more/accuracy"]
    assert only["majority_accuracy"] == 0.5


def test_glue_scores_tasks_whose_classes_fit(root, trained, capsys):
    evaluate.run(str(trained), "glue", None, None, source=f"files:{root}")
    out, err = capsys.readouterr()
    assert list(json.loads(out)["glue"]) == ["sst2"]
    assert "left out rte" in err


def test_task_refuses_a_head_of_other_classes(trained):
    with pytest.raises(
        ConfigError, match="knows the classes negative, positive, and cola has unacceptable"
    ):
        suites.evaluate(runs.open_run(str(trained)), "cola")
    with pytest.raises(ConfigError, match="head"):
        suites.evaluate(runs.open_run(str(trained)), "squad")


@pytest.mark.parametrize("names", [("positive", "negative"), ("LABEL_0", "LABEL_1")])
def test_task_order_of_classes_changes_no_score(root, trained, names):
    """Others' heads may have the classes the other way round, or no names for them."""
    run = runs.open_run(str(trained))
    head = {k: np.asarray(v) for k, v in run.params["classify"]["logits"].items()}
    head["bias"] = head["bias"] + np.array(
        [0, 9], np.float32
    )  # says positive too often: F1 differs by the class
    object.__setattr__(run, "params", {**run.params, "classify": {"logits": head}})
    f1 = [("task.metrics", "('accuracy','f1','mcc')")]
    expected = suites.evaluate(run, "sst2", split="train", changes=f1)
    assert expected["f1"] > expected["accuracy"] + 0.1
    turned = {k: v[..., ::-1] for k, v in head.items()} if names[0] == "positive" else head
    object.__setattr__(run, "params", {**run.params, "classify": {"logits": turned}})
    labels = knobs.Objective(1.0, names)
    object.__setattr__(run, "config", _with(run.config, labels))
    found = suites.evaluate(run, "sst2", split="train", source=f"files:{root}", changes=f1)
    assert found == pytest.approx({key: expected[key] for key in found})
    assert {"accuracy", "f1", "mcc"} <= found.keys()


def _with(config: knobs.Config, objective: knobs.Objective) -> knobs.Config:
    return dataclasses.replace(
        config, objectives={"classify": objective}, task=dataclasses.replace(config.task, name="")
    )


def test_task_submission_is_as_the_server_takes_it(root, trained, tmp_path, capsys):
    evaluate.run(str(trained), "sst2", None, None, submission=str(tmp_path / "glue"))
    lines = (tmp_path / "glue" / "SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(i) for i in range(10)]
    right = [
        int(line.split("\t")[1]) == label
        for line, (_, label) in zip(lines[1:], sentences(5, 9), strict=True)
    ]
    assert np.mean(right) > 0.7
    assert json.loads(capsys.readouterr().out)["sst2"] == {"test/examples": 10}


def test_submission_refuses_a_limit(trained, tmp_path):
    with pytest.raises(ConfigError, match="rows that a server asks for"):
        evaluate.run(str(trained), "sst2", None, None, submission=str(tmp_path), limit=3)
    with pytest.raises(ConfigError, match="rows that a server asks for"):
        evaluate.run(str(trained), "glue", None, None, submission=str(tmp_path), limit=3)


def test_task_scores_all_rows_of_an_unseen_file(root, trained, tmp_path, capsys):
    file = tmp_path / "own.tsv"
    file.write_bytes((root / "SST-2" / "dev.tsv").read_bytes())
    evaluate.run(str(trained), "sst2", None, None, source=f"files:{file}")
    assert json.loads(capsys.readouterr().out)["sst2"]["examples"] == 12
