"""A classifier on its own task and on named ones: scores are those of what `predict` answers."""

import csv
import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import api, errors, suites
from bert_jax.config import knobs
from bert_jax.interop import runs
from bert_jax.suites import labelled
from tests.net import inputs, rows
from tests.suites.asking import ask
from tests.texts import ROOT

pytestmark = pytest.mark.usefixtures("one_device")
UNNAMED = {"classify": knobs.Objective(1.0, ("LABEL_0", "LABEL_1"))}
F1 = (("task.metrics", "('accuracy','f1','mcc')"),)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder in GLUE's layout with SST-2, whose test set has no labels."""
    folder = tmp_path_factory.mktemp("glue")
    inputs.write_inputs(folder, ROOT)
    texts = [text for text, _ in read_rows(folder / "tasks", "dev")]
    lines = ["index\tsentence", *(f"{number}\t{text}" for number, text in enumerate(texts))]
    (folder / "tasks" / "SST-2" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder / "tasks"


def read_rows(root: Path, split: str) -> list[tuple[str, int]]:
    """Read the sentences and labels of a split."""
    with (root / "SST-2" / f"{split}.tsv").open() as file:
        return [(text, int(label)) for text, label in [*csv.reader(file, delimiter="\t")][1:]]


def with_head(run: runs.TrainedModel, **parts: dict[str, np.ndarray]) -> runs.TrainedModel:
    changed = run.params["classify"] | parts
    return dataclasses.replace(run, params={**run.params, "classify": changed})


def predict_shares(run: runs.TrainedModel, root: Path, split: str) -> np.ndarray:
    """The probability of the second class [N], as `predict` has it."""
    found = api.Model(run).classify([text for text, _ in read_rows(root, split)])
    return np.array([[*one["probabilities"].values()][1] for one in found])


@pytest.fixture(scope="module")
def trained(root) -> runs.TrainedModel:
    """A model that says "positive" of about half of all sentences, and has SST-2 as its task."""
    run = runs.open_run(str(rows.MODELS / "classify"))
    asked = suites.Options("sst2", source=f"files:{root}")
    config = labelled.find_task(run, asked, "sst2")
    evals = config.evals | {"more": dataclasses.replace(config.evals["validation"], split="train")}
    run = run.replace_sections(task=config.task, objectives=config.objectives, evals=evals)
    shares = predict_shares(run, root, "train")
    head = jax.tree.map(np.asarray, run.params["classify"]["logits"])
    middle = np.median(np.log(shares / (1 - shares)))
    logits = head | {"bias": head["bias"] + np.array([middle, 0], np.float32)}
    return with_head(run, logits=logits)


def test_task_scores_all_splits_or_one(root, trained):
    found = ask(trained, "task")
    assert (found["examples"], found["more/examples"]) == (16, 48)
    labels = np.array([label for _, label in read_rows(root, "train")])
    right = (predict_shares(trained, root, "train") > 0.5) == labels
    assert found["more/accuracy"] == pytest.approx(np.mean(right))
    only = ask(trained, "sst2", split="train")
    assert (only["examples"], only["accuracy"]) == (48, found["more/accuracy"])
    assert ask(trained.replace_sections(evals={}), "task")["examples"] == 16


def with_transform(run: runs.TrainedModel) -> runs.TrainedModel:
    """Give the head a dense layer and a norm, as ModernBERT's heads have them."""
    run = run.replace_sections(model=dataclasses.replace(run.config.model, pooler="transform"))
    width = run.config.model.hidden
    norm = {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}
    dense = {"kernel": np.eye(width, dtype=np.float32), "bias": norm["bias"]}
    return with_head(run, dense=dense, norm=norm)


@pytest.mark.parametrize(
    ("names", "change"),
    [
        (("POSITIVE", "negative"), None),
        (("LABEL_0", "LABEL_1"), None),
        (("positive", "negative"), with_transform),
    ],
)
def test_task_order_of_classes_changes_no_score(root, trained, names, change):
    """Others' heads may have the classes the other way round, or no names for them."""
    trained = change(trained) if change else trained
    head = trained.params["classify"]["logits"]
    often = head | {"bias": head["bias"] + np.array([0, 0.05], np.float32)}
    expected = ask(with_head(trained, logits=often), "sst2", split="train", changes=F1)
    assert expected["f1"] != pytest.approx(expected["accuracy"])  # F1 differs by the class
    turned = {k: v[..., ::-1] for k, v in often.items()} if names[1] == "negative" else often
    named = {"classify": knobs.Objective(1.0, names)}
    run = with_head(trained, logits=turned).replace_sections(objectives=named)
    options = {"split": "train", "source": f"files:{root}", "changes": F1}
    assert ask(run, "sst2", **options) == pytest.approx(expected)


def test_glue_leaves_out_a_task_with_a_bad_row(root, trained, tmp_path):
    """The scores of the other tasks are not lost."""
    folder = shutil.copytree(root / "SST-2", tmp_path / "SST-2").parent
    (folder / "CoLA").mkdir()
    (folder / "CoLA" / "dev.tsv").write_text("gj04\tmaybe\t\tThe cat sleeps.\n")
    run = trained.replace_sections(objectives=UNNAMED)
    source = f"files:{folder}"
    assert ask(run, "glue", source=source) == {"sst2": ask(run, "sst2", source=source)}


def test_glue_submits_only_the_task_of_the_run(root, trained, tmp_path):
    """Classes without names fit every task of two."""
    for name in ("SST-2", "WNLI"):
        shutil.copytree(root / "SST-2", tmp_path / "glue" / name)
    (tmp_path / "glue" / "WNLI" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    run = trained.replace_sections(objectives=UNNAMED)
    asked = {"source": f"files:{tmp_path / 'glue'}", "submission": str(tmp_path / "sent")}
    assert ask(run, "glue", **asked) == {"sst2": {"test/examples": 16}}
    assert [file.name for file in (tmp_path / "sent").iterdir()] == ["SST-2.tsv"]
    nameless = run.replace_sections(task=dataclasses.replace(run.config.task, name=""))
    with pytest.raises(errors.ConfigError, match="names no task of GLUE"):
        ask(nameless, "glue", **asked)


def test_task_submission_is_as_the_server_takes_it(root, trained, tmp_path, capsys):
    assert ask(trained, "sst2", submission=str(tmp_path / "glue")) == {"test/examples": 16}
    assert "test: no labels, so there is nothing to score" in capsys.readouterr().err
    said = predict_shares(trained, root, "dev") > 0.5
    lines = ["index\tprediction", *(f"{number}\t{int(label)}" for number, label in enumerate(said))]
    path = tmp_path / "glue" / "SST-2.tsv"
    assert path.read_text().splitlines() == lines
    with pytest.raises(errors.ConfigError, match="cannot write"):  # before it misses the data
        ask(trained, "sst2", source="files:nowhere", submission=str(path))


def test_task_scores_all_rows_of_an_unseen_file(root, trained, tmp_path):
    """Nothing is held back from training, as of a single file of the run's own."""
    file = tmp_path / "own.tsv"
    file.write_bytes((root / "SST-2" / "dev.tsv").read_bytes())
    assert ask(trained, "sst2", source=f"files:{file}")["examples"] == 16
    task = dataclasses.replace(trained.config.task, source="")
    config = dataclasses.replace(trained.config, task=task)
    asked = {"config": config, "source": f"files:{file}"}
    assert api.score(api.Model(trained), "task", **asked)["examples"] == 16
