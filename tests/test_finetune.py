"""Fine-tuning end to end: the loop of pre-training on labelled data, its recipes, and what it refuses."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from bert_jax import faults, judge, material, runs, sharding, train, trees
from bert_jax.errors import ConfigError, DataError
from tests import tasks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("task")
    tasks.write_classify(made)
    return made


@pytest.fixture(scope="module")
def trained(folder):
    config = classify(folder, epochs=12)
    train.run(config, folder / "run", command=[])
    return folder / "run"


def classify(folder, **overrides):
    return tasks.config("classify", f"files:{folder}/complaints.tsv", folder, **overrides)


def mesh_of(devices: int):
    axes = (jax.sharding.AxisType.Auto,) * 4
    return jax.make_mesh((1, devices, 1, 1), sharding.AXES, axis_types=axes, devices=jax.devices()[:devices])


def test_a_task_is_learnt(trained):
    scores = [line for line in tasks.lines(trained) if "eval/validation/accuracy" in line]
    assert scores[-1]["eval/validation/accuracy"] > 0.8  # a third by chance
    assert (trained / "report.html").is_file()


def test_labels_and_steps_follow_from_the_data(folder, trained):
    config = runs.open_run(str(trained)).config
    assert config.objectives["classify"].labels == ("billing", "hardware", "software")
    given = material.gather(classify(folder, epochs=12))
    rows = given.source.count(0)
    assert config.steps == -(-rows * 12 // 8)
    assert config.optim.warmup_steps == int(config.steps * 0.1)
    assert config.evals["validation"].every == config.checkpoints.every == -(-rows // 8)


def test_every_row_comes_once_an_epoch(folder):
    source = material.gather(classify(folder)).source
    count = source.count(0)
    ids = np.concatenate([source.batch(step)["example_ids"].ravel() for step in range(-(-2 * count // 8))])
    for epoch in range(2):
        assert sorted(ids[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert (ids[:count] != ids[count : 2 * count]).any()  # in another order


def test_a_process_sees_its_rows_of_the_same_batch(folder):
    source = material.gather(classify(folder)).source
    whole, part = source.batch(3), source.batch(3, slice(2, 5))
    for name, values in whole.items():
        np.testing.assert_array_equal(part[name], values[2:5], err_msg=name)


@pytest.mark.parametrize("pad", ["batch", "full"])
def test_padding_changes_shapes_and_no_loss(folder, tmp_path, pad):
    train.run(classify(folder, task__pad=pad, steps=4, epochs="None", seed=3), tmp_path / pad, command=[])
    batch = material.gather(classify(folder, task__pad=pad)).source.batch(0)
    assert batch["tokens"].shape[1] == {"batch": 16, "full": 32}[pad]
    found = [line["train/loss"] for line in tasks.lines(tmp_path / pad) if "train/loss" in line]
    LOSSES.setdefault("first", found)
    assert found == pytest.approx(LOSSES["first"], rel=2e-5)


LOSSES: dict[str, list[float]] = {}


@pytest.mark.parametrize(("rows", "devices"), [(5, 1), (1, 8), (7, 8), (32, 8)])
def test_scores_are_exact_at_any_batch_size_and_device_count(trained, rows, devices):
    run = runs.open_run(str(trained))
    examples = material.held_out(run.config, "validation")
    mesh = mesh_of(devices)
    params = jax.device_put(run.params, sharding.replicated(mesh))
    found = judge.Judge(run.config, run.tokenizer, examples, rows, mesh)
    scores, predictions = found.both(params)
    assert len(predictions) == len(examples)
    assert scores["examples"] == len(examples)
    hits = [int(p.argmax()) == e.label for p, e in zip(predictions, examples, strict=True)]
    assert scores["accuracy"] == pytest.approx(np.mean(hits))
    losses = [-np.log(p[e.label]) for p, e in zip(predictions, examples, strict=True)]
    assert scores["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    EXACT.setdefault("first", scores)
    assert scores == pytest.approx(EXACT["first"], rel=1e-5)


EXACT: dict[str, dict[str, float]] = {}


def test_a_run_goes_on_where_it_was_stopped(folder, trained, tmp_path, monkeypatch):
    """Bitwise, as pre-training does: the state to save is the step."""
    config = classify(folder, epochs=12)
    monkeypatch.setattr(faults, "_armed", lambda: ("step", 20, "raise"))
    with pytest.raises(RuntimeError, match="fault injected at step, step 20"):
        train.run(config, tmp_path / "w", command=[])
    monkeypatch.undo()
    train.run(config, tmp_path / "w", command=[])
    ours, theirs = (
        runs.open_run(str(w / "checkpoints" / str(runs.open_run(str(w)).config.steps))).params
        for w in (tmp_path / "w", trained)
    )
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_training_ends_when_it_gets_no_better(folder, tmp_path, capfd):
    settings = {"epochs": 40, "checkpoints__patience": 2, "optim__learning_rate": 0}
    train.run(classify(folder, **settings), tmp_path / "w", command=[])
    every = runs.open_run(str(tmp_path / "w")).config.checkpoints.every
    assert max(line["step"] for line in tasks.lines(tmp_path / "w")) == 3 * every  # one to compare with, and two misses
    assert "ended early: 2 evaluations" in capfd.readouterr().err
    before = (tmp_path / "w" / "metrics.jsonl").read_bytes()
    train.run(classify(folder, **settings), tmp_path / "w", command=[])  # and stays ended
    assert (tmp_path / "w" / "metrics.jsonl").read_bytes() == before


def test_top_layers_can_start_fresh(folder, trained, tmp_path):
    """The others are the model's, bit for bit; the fresh ones are the run's own draw."""
    settings = {"init_from": str(trained), "optim__learning_rate": 0, "steps": 1, "epochs": "None", "seed": 9}
    train.run(classify(folder, init_fresh_layers=1, **settings), tmp_path / "top", command=[])
    train.run(
        classify(folder, init_from="", **{k: v for k, v in settings.items() if k != "init_from"}),
        tmp_path / "new",
        command=[],
    )
    top, old, new = (trees.flat(runs.open_run(str(p)).params) for p in (tmp_path / "top", trained, tmp_path / "new"))
    for name, value in top.items():
        if "/layers/" in name:
            np.testing.assert_array_equal(value[0], old[name][0], err_msg=name)
            np.testing.assert_allclose(value[1], new[name][1], rtol=1e-5, atol=1e-7, err_msg=name)
        else:
            expected = new if name.startswith("encoder/pooler/") else old
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7, err_msg=name)


def test_features_train_a_head_alone_on_the_last_layers(folder, trained, tmp_path):
    settings = {
        "init_from": str(trained),
        "init_fresh": "^classify/",
        "optim__freeze": "^encoder/",
        "model__features": 2,
    }
    train.run(classify(folder, **settings), tmp_path / "w", command=[])
    ours, theirs = (trees.flat(runs.open_run(str(w)).params) for w in (tmp_path / "w", trained))
    assert ours["classify/logits/kernel"].shape == (2 * 32, 3)
    for name, value in ours.items():
        if name.startswith("encoder/"):
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    losses = [line["train/loss"] for line in tasks.lines(tmp_path / "w") if "train/loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("step", ["jit", "pmap"])
def test_devices_change_nothing(folder, tmp_path, step):
    """Eight devices under either wrapper: the losses are those of the plain run."""
    train.run(
        classify(folder, parallel__step=step, optim__accumulation=1, steps=4, epochs="None", seed=3),
        tmp_path / step,
        command=[],
    )
    found = [line["train/loss"] for line in tasks.lines(tmp_path / step) if "train/loss" in line]
    LOSSES.setdefault("first", found)
    assert found == pytest.approx(LOSSES["first"], rel=2e-5)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"tokenizer__path": ""}, "no vocabulary of its own"),
        ({"checkpoints__best": "mcc2"}, "no metric of evals.validation"),
        ({"task__long": "windows"}, "does not look at texts in windows"),
        ({"model__features": 9}, "exceeds model.layers"),
        ({"checkpoints__patience": 1, "checkpoints__best": ""}, "needs checkpoints.best"),
    ],
)
def test_settings_that_cannot_be_are_refused(folder, tmp_path, overrides, said):
    with pytest.raises(ConfigError, match=said):
        train.run(classify(folder, **overrides), tmp_path / "w", command=[])


@pytest.mark.parametrize(
    ("kind", "rows", "overrides", "said"),
    [
        ("classify", ["the fan is loud\thardware", "\tbilling"], {}, r"data\.tsv:3: .*empty"),
        ("classify", ["the fan is loud\thardware", "too\tmany\tfields"], {}, r"data\.tsv:3: "),
        (
            *("classify", ["the fan is loud\thardware", "the refund is late\tbiling"]),
            {"objectives__classify__labels": "('billing','hardware')"},
            r"data\.tsv:3: .*biling",
        ),
        ("classify", ["the fan is loud\thardware", "the screen is broken\thardware"], {}, r"data\.tsv"),
        (
            *("classify", ["the fan is loud\thardware", f"{'again ' * 40}\tbilling"]),
            {"task__long": "refuse", "task__validation_fraction": 0},
            r"data\.tsv:3: 42 tokens",
        ),
        ("regress", ["the fan is loud\t1.5", "the refund is late\tNaN"], {}, r"data\.tsv:3: .*NaN"),
    ],
)
def test_bad_data_ends_with_its_place_before_anything_is_trained(folder, tmp_path, kind, rows, overrides, said):
    file = tmp_path / "data.tsv"
    file.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    with pytest.raises(DataError, match=said) as caught:
        train.run(tasks.config(kind, f"files:{file}", folder, **overrides), tmp_path / "w", command=[])
    assert caught.value.code == 3
    assert caught.value.hint
    assert not (tmp_path / "w" / "checkpoints").exists()
