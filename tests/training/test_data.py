"""What follows from the data: labelled tasks through the loop, and checkpoints by words."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax import train
from bert_jax.config import default, knobs, load_file
from bert_jax.data import pipeline, prepare
from bert_jax.errors import Stopped
from bert_jax.evaluation.task_evaluator import TaskEvaluator
from bert_jax.interop import runs
from bert_jax.training import data
from bert_jax.training import runs as training_runs
from tests import fault_points, outcomes, tasks, texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("task")
    tasks.write_classify(made)
    return made


def classify(folder: Path, **overrides) -> knobs.Config:
    return tasks.config("classify", f"files:{folder}/complaints.tsv", folder, **overrides)


LONGER = {"epochs": 12, "checkpoints__epochs": 4, "evals__validation__epochs": 4}


@pytest.fixture(scope="module")
def trained(folder) -> Path:
    with texts.one_device():
        train.run(classify(folder, **LONGER), folder / "run", command=[])
    return folder / "run"


def test_task_is_learnt_and_its_mistakes_recorded(trained):
    lines = [line for line in outcomes.metrics(trained) if "eval/validation/accuracy" in line]
    accuracy = lines[-1]["eval/validation/accuracy"]
    assert accuracy > 0.8  # a third by chance
    rows = outcomes.samples(trained)
    assert [row["step"] for row in rows] == [line["step"] for line in lines]
    counts = rows[-1]["counts"]
    right = sum(count for truth, chosen, count in counts if truth == chosen)
    assert right / sum(count for *_, count in counts) == pytest.approx(accuracy)


def test_labels_and_steps_follow_from_the_data(folder, trained):
    config = runs.open_run(str(trained)).config
    assert config.objectives["classify"].labels == ("billing", "hardware", "software")
    rows = data.load_training_data(classify(folder, **LONGER)).source.examples_per_epoch
    assert config.steps == -(-rows * 12 // 8)
    assert config.optim.warmup_steps == int(config.steps * 0.1)
    assert config.evals["validation"].every == config.checkpoints.every == -(-rows * 4 // 8)


def test_task_ignores_the_copies_of_a_preset(folder, monkeypatch):
    monkeypatch.setattr(tasks, "default", lambda: default("google_2018"))
    found = data.load_training_data(classify(folder))
    assert (found.config.masking.dupe_factor, found.count_distinct()) == (10, math.inf)


def test_finetuning_ends_when_it_gets_no_better(folder, tmp_path, monkeypatch, capfd, one_device):
    """It is stopped before the last evaluations, and in the second of them."""
    settings = {"epochs": 40, "checkpoints__patience": 2, "optim__learning_rate": 0}
    config = classify(folder, **settings)
    final = dataclasses.replace(config.evals["validation"], epochs=None, every=0)
    config = dataclasses.replace(config, evals={**config.evals, "final": final})
    every = data.load_training_data(config).config.checkpoints.every
    stops = [(training_runs.Runs, "list_due", 3 * every), (TaskEvaluator, "evaluate", 2)]
    for owner, name, call in stops:
        with monkeypatch.context() as patch:
            fault_points.stop_at(owner, name, call, patch.setattr)
            with pytest.raises(Stopped):
                train.run(config, tmp_path, command=[])
    train.run(config, tmp_path, command=[])
    # One evaluation to compare with, and two misses.
    lines = outcomes.metrics(tmp_path)
    assert max(line["step"] for line in lines) == 3 * every
    assert [line["step"] for line in lines if "eval/final/loss" in line] == [3 * every]
    assert "ended early: 2 evaluations" in capfd.readouterr().err
    before = (tmp_path / "metrics.jsonl").read_bytes()
    train.run(config, tmp_path, command=[])
    assert "ended early" in capfd.readouterr().err
    shorter = dataclasses.replace(config, epochs=None, steps=3 * every)
    allowed = ("epochs", "steps", "optim.warmup_steps")
    train.run(shorter, tmp_path, allow_change=allowed, command=[])
    assert "ended early" not in capfd.readouterr().err
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_config_reads_no_parameters_of_its_model(trained, monkeypatch):
    """Several processes must not touch a device before they know of each other."""
    monkeypatch.setattr(runs, "open_run", None)
    assert load_file(f"configs/finetune.py:classify,init_from={trained}").model.hidden == 32


# --- checkpoints by words -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def read(base) -> int:
    """Words of the corpus, by its lines."""
    text = (base.parent / "corpus" / "text.txt").read_text()
    return len(re.findall(r"[a-z]+", text))


def configure_words(base: Path, *words: int, **overrides: object) -> knobs.Config:
    """A config that trains on all documents, with checkpoints by words."""
    common = {"pairs": "none", "checkpoints__best": "", "corpus__deduplicate": False}
    common |= {"batch_size": 4, "steps": 400, "checkpoints__at_words": words}
    found = texts.configure(base, **common | overrides)
    corpus = dataclasses.replace(found.corpus, validation_fraction=0.0)
    return dataclasses.replace(found, corpus=corpus, evals={})


KINDS = [{}, {"packing": 3}, {"masking__prediction_rate": 0.3}, {"masking__dupe_factor": 2}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_steps_of_words_equal_a_count_of_batches(base, read, kind):
    """To a fiftieth of the text within an epoch, and at its end to the word."""
    wanted = [read // 3, read, 3 * read // 2, 2 * read]
    found = configure_words(base, *wanted, **kind)
    prepared = prepare.prepare_corpus(found, log=lambda line: None)
    stream = pipeline.TextStream(prepared, "train", found)
    begins = np.array([any(map(str.isalnum, piece)) for piece in prepared.tokenizer.vocab])
    begins &= ~prepared.tokenizer.continuation
    steps = data.steps_of_words(found, prepared, stream)
    assert list(steps) == sorted(steps)
    counts = [0]
    for step in range(max(steps)):
        batch = stream.batch(step)
        first = batch["views"][:, 0] == 0 if "views" in batch else slice(None)
        text = (batch["unit_ids"] >= 0) & begins[batch["tokens"]]
        counts.append(int(text[first].sum()))
    before = np.cumsum(counts)
    for words, step in zip(wanted, steps, strict=True):
        error = 0 if words % read == 0 else read / 50
        assert before[step] >= words - error
        assert before[step - 1] < words + error


def test_gather_converts_epochs_and_words_to_steps(base, read):
    """No text is read more often than asked, and saves by words join those by steps."""
    more = {"masking__prediction_rate": 0.3, "batch_size": 8, "checkpoints__at": "(5,)"}
    asked = dataclasses.replace(configure_words(base, read, 2 * read, **more), epochs=2.5)
    found = data.load_training_data(asked)
    rows = found.source.rows_per_epoch * 2  # views
    assert found.config.steps == int(2.5 * rows / 8)
    assert found.config.checkpoints.at == (5, *(-(-n * rows // 8) for n in (1, 2)))
