"""Labelled tasks through the loop: what follows from the data, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import objectives, train
from bert_jax.config import knobs, load_file
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.system import trees
from bert_jax.training import data
from bert_jax.training import runs as training_runs
from tests import fault_points, outcomes, tasks, texts, toy, updates


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("task")
    tasks.write_classify(made)
    return made


def classify(folder: Path, **overrides: Any) -> knobs.Config:
    return tasks.config("classify", f"files:{folder}/complaints.tsv", folder, **overrides)


@pytest.fixture(scope="module")
def trained(folder) -> Path:
    with texts.one_device():
        train.run(classify(folder, epochs=12), folder / "run", command=[])
    return folder / "run"


def test_task_is_learnt_and_its_mistakes_recorded(folder, trained):
    lines = [line for line in tasks.lines(trained) if "eval/validation/accuracy" in line]
    assert lines[-1]["eval/validation/accuracy"] > 0.8  # a third by chance
    rows = outcomes.samples(trained)
    assert [row["step"] for row in rows] == [line["step"] for line in lines]
    run = runs.open_run(str(trained / "checkpoints" / str(lines[-1]["step"])))
    evaluator = data.gather(run.config).evaluator("validation", updates.make_mesh(1))
    metrics, (row,) = evaluator(jax.device_put(run.params))
    counts = {(truth, chosen): count for truth, chosen, count in rows[-1]["counts"]}
    assert sum(counts.values()) == metrics["examples"]
    right = sum(count for (truth, chosen), count in counts.items() if truth == chosen)
    assert right / metrics["examples"] == pytest.approx(metrics["accuracy"])
    assert {"step": lines[-1]["step"], **row} == rows[-1]


def test_labels_and_steps_follow_from_the_data(folder, trained):
    config = runs.open_run(str(trained)).config
    assert config.objectives["classify"].labels == ("billing", "hardware", "software")
    rows = data.gather(classify(folder, epochs=12)).source.examples_per_epoch
    assert config.steps == -(-rows * 12 // 8)
    assert config.optim.warmup_steps == int(config.steps * 0.1)
    assert config.evals["validation"].every == config.checkpoints.every == -(-rows // 8)


@pytest.mark.fault(15)
def test_texts_that_are_cut_are_counted_aloud(folder, capfd):
    data.gather(classify(folder, sequence_length=8))
    cut = re.search(r"(\d+) of 38 training texts are cut to 8 tokens", capfd.readouterr().err)
    assert cut is not None
    assert 0 < int(cut.group(1)) < 38


@pytest.mark.fault(8)
def test_every_row_comes_once_an_epoch(folder):
    source = data.gather(classify(folder)).source
    count = source.examples_per_epoch
    batches = [source.batch(step) for step in range(-(-2 * count // 8))]
    ids = np.concatenate([batch["example_ids"].ravel() for batch in batches])
    for epoch in range(2):
        assert sorted(ids[epoch * count : (epoch + 1) * count]) == [*range(count)]
    assert (ids[:count] != ids[count : 2 * count]).any()  # in another order
    for name, values in source.batch(3, slice(2, 5)).items():  # the rows of one process
        np.testing.assert_array_equal(values, batches[3][name][2:5], err_msg=name)


def read_losses(folder: Path, workdir: Path, **overrides: Any) -> list[float]:
    """Return the training losses of four updates."""
    changes = {"steps": 4, "epochs": "None", "seed": 3, "model__layers": 1, **overrides}
    train.run(classify(folder, **changes), workdir, command=[])
    return outcomes.logged(workdir, "loss")


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides", [{"task__pad": "full"}, {"parallel__step": "pmap"}, {"parallel__fsdp": 4}]
)
def test_padding_and_devices_change_no_loss(folder, tmp_path, overrides):
    plain = read_losses(folder, tmp_path / "plain")
    assert read_losses(folder, tmp_path / "w", **overrides) == pytest.approx(plain, rel=2e-5)


def test_grouping_by_length_changes_no_loss(folder, tmp_path):
    """For a model that stays as it is, over as many epochs as fill whole batches."""
    rows = {
        f"{' '.join([text] * (1 + number % 4))}\t{topic}"
        for number, (text, topic) in enumerate(tasks.complaints(50))
    }
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *sorted(rows)]) + "\n")
    losses, sizes = [], []
    for group in ("none", "length"):
        source = f"files:{tmp_path / 'rows.tsv'}"
        given = data.gather(tasks.config("classify", source, folder, task__group=group, epochs=8))
        config, vocab_size = given.config, given.tokenizer.size
        params, model = toy.init(config, vocab=vocab_size), network.build(config, vocab_size)

        def compute_loss(batch: Any, model: Any = model, params: Any = params) -> Any:
            outputs = network.outputs(model, params, batch)["classify"]
            return objectives.TABLE["classify"].loss(outputs, batch)["classify_loss"]

        batches = [given.source.batch(step) for step in range(config.steps)]
        sums, counts = zip(*map(jax.jit(compute_loss), batches), strict=True)
        assert sum(counts) == 8 * given.source.examples_per_epoch
        losses.append(float(sum(sums)))
        sizes.append(sum(batch["tokens"].size for batch in batches))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert sizes[1] < 0.9 * sizes[0]


def test_finetuning_stops_and_resumes_with_its_misses(folder, tmp_path, monkeypatch, one_device):
    """Bitwise, with dropout, and with what is known of the best step and the misses since."""
    config = classify(
        folder,
        epochs=5,
        checkpoints__patience=4,
        checkpoints__best="accuracy",
        model__dropout=0.1,
        optim__learning_rate=1e-5,
    )
    train.run(config, tmp_path / "whole", command=[])
    every = runs.open_run(str(tmp_path / "whole")).config.checkpoints.every
    last = max(line["step"] for line in tasks.lines(tmp_path / "whole"))

    def stop(name: str, step: int) -> None:
        if step == 3 * every + 2:  # between two evaluations
            raise RuntimeError("a fault of this test")

    with monkeypatch.context() as patch:
        fault_points.plant(training_runs, stop, patch.setattr)
        with pytest.raises(RuntimeError, match="a fault of this test"):
            train.run(config, tmp_path / "w", command=[])
    train.run(config, tmp_path / "w", command=[])
    outcomes.assert_same(tmp_path / "w", tmp_path / "whole", last)


def test_finetuning_ends_when_it_gets_no_better(folder, tmp_path, capfd, one_device):
    settings = {"epochs": 40, "checkpoints__patience": 2, "optim__learning_rate": 0}
    train.run(classify(folder, **settings), tmp_path / "w", command=[])
    every = runs.open_run(str(tmp_path / "w")).config.checkpoints.every
    # One evaluation to compare with, and two misses.
    assert max(line["step"] for line in tasks.lines(tmp_path / "w")) == 3 * every
    assert "ended early: 2 evaluations" in capfd.readouterr().err
    before = (tmp_path / "w" / "metrics.jsonl").read_bytes()
    train.run(classify(folder, **settings), tmp_path / "w", command=[])  # and stays ended
    assert (tmp_path / "w" / "metrics.jsonl").read_bytes() == before


def test_features_train_only_a_head_on_the_last_layers(folder, trained, tmp_path, one_device):
    settings = {
        "init_from": str(trained),
        "init_fresh": "^classify/",
        "optim__freeze": "^encoder/",
        "model__features": 2,
        "steps": 12,
        "epochs": "None",
    }
    train.run(classify(folder, **settings), tmp_path / "w", command=[])
    ours, theirs = (trees.flat(runs.open_run(str(w)).params) for w in (tmp_path / "w", trained))
    assert ours["classify/logits/kernel"].shape == (2 * 32, 3)
    for name, value in ours.items():
        if name.startswith("encoder/"):
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    losses = outcomes.logged(tmp_path / "w", "loss")
    assert losses[-1] < losses[0]


@pytest.mark.fault(7)
def test_changed_task_data_is_noticed_on_resume(folder, tmp_path, one_device):
    rows = (folder / "complaints.tsv").read_text().splitlines(keepends=True)
    (tmp_path / "train.tsv").write_text("".join(rows[:33]))
    (tmp_path / "dev.tsv").write_text("".join([rows[0], *rows[33:]]))
    config = tasks.config("classify", f"files:{tmp_path}/{{split}}.tsv", folder, epochs=1)
    train.run(config, tmp_path / "w", command=[])
    for name in ("dev.tsv", "train.tsv"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("loud", "quiet").replace("late", "early"))
        with pytest.raises(ConfigError, match="trained on another corpus"):
            train.run(config, tmp_path / "w", command=[])


def test_head_of_other_classes_starts_fresh(folder, trained, tmp_path):
    """As many classes under other names are other classes."""
    file = tmp_path / "renamed.tsv"
    file.write_text((folder / "complaints.tsv").read_text().replace("billing", "zebra"))
    settings = {"init_from": str(trained), "steps": 1, "epochs": "None"}
    config = tasks.config("classify", f"files:{file}", folder, **settings)
    with pytest.raises(ConfigError, match="lacks classify/logits"):
        train.run(config, tmp_path / "w", command=[])


def test_config_reads_no_parameters_of_its_model(trained, monkeypatch):
    """Several processes must not touch a device before they know of each other."""
    monkeypatch.setattr(runs, "open_run", None)
    found = load_file(f"configs/finetune.py:classify,init_from={trained}")
    assert found.model.hidden == 32
    assert runs.read_description(str(trained))[1] == trained / "tokenizer"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"tokenizer__path": ""}, "no vocabulary of its own"),
        ({"checkpoints__best": "f1"}, r"checkpoints\.best = 'f1' is not reported for the classes"),
        ({"task__metrics": "pearson", "checkpoints__best": ""}, "pearson. is not reported"),
        ({"task__long": "windows"}, "has no meaning for classify"),
        ({"model__features": 9}, "exceeds model.layers"),
    ],
)
def test_finetuning_refuses_what_cannot_be(folder, tmp_path, overrides, said):
    with pytest.raises(ConfigError, match=said):
        train.run(classify(folder, **overrides), tmp_path / "w", command=[])


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("kind", "row", "overrides", "said"),
    [
        ("classify", "\tbilling", {}, r"data\.tsv:3: .*empty"),
        ("classify", "too\tmany\tfields", {}, r"data\.tsv:3: "),
        (
            *("classify", "the refund is late\tbiling"),
            {"objectives__classify__labels": "('billing','hardware')"},
            r"data\.tsv:3: .*biling",
        ),
        ("classify", "the screen is broken\thardware", {}, r"data\.tsv"),
        (
            *("classify", f"{'again ' * 40}\tbilling"),
            {"task__long": "refuse", "task__validation_fraction": 0},
            r"data\.tsv:3: 42 tokens",
        ),
        ("regress", "the refund is late\tNaN", {}, r"data\.tsv:3: .*NaN"),
    ],
)
def test_bad_data_ends_with_its_place(folder, tmp_path, kind, row, overrides, said):
    file = tmp_path / "data.tsv"
    first = "1.5" if kind == "regress" else "hardware"
    file.write_text(f"text\tlabel\nthe fan is loud\t{first}\n{row}\n")
    config = tasks.config(kind, f"files:{file}", folder, **overrides)
    with pytest.raises(DataError, match=said) as caught:
        train.run(config, tmp_path / "w", command=[])
    assert caught.value.code == 3
    assert caught.value.hint
    assert not (tmp_path / "w" / "checkpoints").exists()
