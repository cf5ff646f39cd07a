"""Fine-tuning end to end: the loop of pre-training on labelled data, its recipes, and what it
refuses.
"""

from __future__ import annotations

import dataclasses
import re

import jax
import numpy as np
import pytest

from bert_jax import objectives, sharding, train
from bert_jax.config import load_file
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import task_evaluator
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.system import trees
from bert_jax.training import data
from bert_jax.training import runs as training_runs
from tests import fault_points, outcomes, tasks, texts, toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("task")
    tasks.write_classify(made)
    return made


@pytest.fixture(scope="module")
def trained(folder):
    with texts.one_device():
        train.run(classify(folder, epochs=12), folder / "run", command=[])
    return folder / "run"


def classify(folder, **overrides):
    return tasks.config("classify", f"files:{folder}/complaints.tsv", folder, **overrides)


def mesh_of(devices: int):
    axes = (jax.sharding.AxisType.Auto,) * 3
    return jax.make_mesh(
        (1, devices, 1), sharding.AXES, axis_types=axes, devices=jax.devices()[:devices]
    )


def test_a_task_is_learnt(trained):
    scores = [line for line in tasks.lines(trained) if "eval/validation/accuracy" in line]
    assert scores[-1]["eval/validation/accuracy"] > 0.8  # a third by chance
    assert (trained / "report.html").is_file()


def test_each_evaluation_records_what_is_wrong(folder, trained):
    rows = outcomes.samples(trained)
    evaluated = [x["step"] for x in tasks.lines(trained) if "eval/validation/loss" in x]
    assert [row["step"] for row in rows] == evaluated
    run = runs.open_run(str(trained / "checkpoints" / str(evaluated[-1])))
    evaluator = data.gather(run.config).evaluator("validation", mesh_of(1))
    metrics, (row,) = evaluator(jax.device_put(run.params))
    counts = {(truth, chosen): count for truth, chosen, count in rows[-1]["counts"]}
    assert sum(counts.values()) == metrics["examples"]
    right = sum(count for (truth, chosen), count in counts.items() if truth == chosen)
    assert right / metrics["examples"] == pytest.approx(metrics["accuracy"])
    assert {"step": evaluated[-1], **row} == rows[-1]
    assert len(rows[0]["mistakes"]) == min(12, sum(n for a, b, n in rows[0]["counts"] if a != b))


def test_labels_and_steps_follow_from_the_data(folder, trained):
    config = runs.open_run(str(trained)).config
    assert config.objectives["classify"].labels == ("billing", "hardware", "software")
    given = data.gather(classify(folder, epochs=12))
    rows = given.source.examples_per_epoch
    assert config.steps == -(-rows * 12 // 8)
    assert config.optim.warmup_steps == int(config.steps * 0.1)
    assert config.evals["validation"].every == config.checkpoints.every == -(-rows // 8)


@pytest.mark.fault(15)
def test_texts_that_are_cut_are_counted_aloud(folder, capfd):
    data.gather(classify(folder, sequence_length=8))
    cut = re.search(r"(\d+) of 38 training texts are cut to 8 tokens", capfd.readouterr().err)
    assert cut is not None
    assert 0 < int(cut.group(1)) < 38


def test_every_row_comes_once_an_epoch(folder):
    source = data.gather(classify(folder)).source
    count = source.examples_per_epoch
    ids = np.concatenate(
        [source.batch(step)["example_ids"].ravel() for step in range(-(-2 * count // 8))]
    )
    for epoch in range(2):
        assert sorted(ids[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert (ids[:count] != ids[count : 2 * count]).any()  # in another order


def test_a_process_sees_its_rows_of_the_same_batch(folder):
    source = data.gather(classify(folder)).source
    whole, part = source.batch(3), source.batch(3, slice(2, 5))
    for name, values in whole.items():
        np.testing.assert_array_equal(part[name], values[2:5], err_msg=name)


def losses_of(folder, workdir, **overrides) -> list[float]:
    """The first training losses of a run."""
    train.run(
        classify(folder, steps=4, epochs="None", seed=3, model__layers=1, **overrides),
        workdir,
        command=[],
    )
    return [line["train/loss"] for line in tasks.lines(workdir) if "train/loss" in line]


@pytest.fixture(scope="module")
def plain(folder):
    """Losses of the plain run: one program over eight devices, rows padded to their batch."""
    return losses_of(folder, folder / "plain")


def test_padding_changes_shapes(folder):
    for pad, length in {"batch": 16, "full": 32}.items():
        config = classify(folder, task__pad=pad)
        assert data.gather(config).source.batch(0)["tokens"].shape[1] == length


@pytest.mark.slow
def test_padding_changes_no_loss(folder, plain, tmp_path):
    assert losses_of(folder, tmp_path / "w", task__pad="full") == pytest.approx(plain, rel=2e-5)


def test_scores_are_exact_at_any_batch_size_and_device_count(trained):
    run = runs.open_run(str(trained))
    examples = data.held_out(run.config, "validation")
    found = []
    for rows, devices in ((5, 1), (1, 8), (7, 8), (32, 8)):
        mesh = mesh_of(devices)
        params = jax.device_put(run.params, sharding.replicated(mesh))
        scores, predictions = task_evaluator.TaskEvaluator(
            run.config, run.tokenizer, examples, rows, mesh
        ).evaluate(params)
        assert len(predictions) == scores["examples"] == len(examples)
        hits = [int(p.argmax()) == e.label for p, e in zip(predictions, examples, strict=True)]
        assert scores["accuracy"] == pytest.approx(np.mean(hits))
        losses = [-np.log(p[e.label]) for p, e in zip(predictions, examples, strict=True)]
        assert scores["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
        found.append(scores)
    for scores in found[1:]:
        assert scores == pytest.approx(found[0], rel=1e-5)


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_stopped(folder, tmp_path, monkeypatch, capfd, one_device):
    """Bitwise, with dropout, grouped rows, and what is known of the best step and of the misses
    since.
    """
    settings = {
        "epochs": 12,
        "checkpoints__patience": 9,
        "model__dropout": 0.1,
        "checkpoints__best": "accuracy",
    }
    settings |= {"task__group": "length"}
    train.run(classify(folder, **settings), tmp_path / "whole", command=[])
    every = runs.open_run(str(tmp_path / "whole")).config.checkpoints.every
    at = 4 * every + 2  # between two evaluations, with some misses behind it

    def stop(name: str, step: int) -> None:
        if step == at:
            raise RuntimeError("a fault of this test")

    fault_points.plant(training_runs, stop, monkeypatch.setattr)
    with pytest.raises(RuntimeError, match="a fault of this test"):
        train.run(classify(folder, **settings), tmp_path / "w", command=[])
    monkeypatch.undo()
    train.run(classify(folder, **settings), tmp_path / "w", command=[])
    assert f"resuming {tmp_path / 'w'} at step {4 * every}" in capfd.readouterr().err
    last = max(line["step"] for line in tasks.lines(tmp_path / "whole"))
    ours, theirs = (
        runs.open_run(str(tmp_path / w / "checkpoints" / str(last))) for w in ("w", "whole")
    )
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)
    assert {key: ours.meta[key] for key in ("best", "misses")} == {
        key: theirs.meta[key] for key in ("best", "misses")
    }
    assert ours.meta["misses"] > 0
    scored, expected = (
        [
            {k: v for k, v in line.items() if k.startswith("eval/")}
            for line in tasks.lines(tmp_path / w)
        ]
        for w in ("w", "whole")
    )
    assert scored == expected
    assert outcomes.samples(tmp_path / "w") == outcomes.samples(tmp_path / "whole") != []


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Rows of 5 to 29 tokens."""
    made = tmp_path_factory.mktemp("uneven") / "rows.tsv"
    rows = [
        f"{' '.join([text] * (1 + number % 4))}\t{topic}"
        for number, (text, topic) in enumerate(tasks.complaints(50))
    ]
    made.write_text("\n".join(["text\tlabel", *dict.fromkeys(rows)]) + "\n")
    return f"files:{made}"


@pytest.mark.slow
def test_grouping_changes_the_company_and_no_loss_of_an_epoch(folder, uneven):
    """Of a model that stays as it is, over as many epochs as fill whole batches."""
    both = [
        data.gather(tasks.config("classify", uneven, folder, task__group=group, epochs=8))
        for group in ("none", "length")
    ]
    config, vocab_size = both[0].config, both[0].tokenizer.size
    params, model = toy.init(config, vocab=vocab_size), network.build(config, vocab_size)
    of_batch = objectives.TABLE["classify"].loss
    step = jax.jit(
        lambda batch: of_batch(network.outputs(model, params, batch)["classify"], batch)[
            "classify_loss"
        ]
    )
    losses, sizes = [], []
    for given in both:
        batches = [given.source.batch(at) for at in range(given.config.steps)]
        sums, counts = zip(*map(step, batches), strict=True)
        assert sum(counts) == 8 * given.source.examples_per_epoch == 8 * len(batches)
        losses.append(float(sum(sums)))
        sizes.append(sum(batch["tokens"].size for batch in batches))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert sizes[1] < 0.9 * sizes[0]


@pytest.fixture
def started(folder, tmp_path, one_device):
    """A run of a few steps on files of its own, which may be changed."""
    rows = (folder / "complaints.tsv").read_text().splitlines(keepends=True)
    (tmp_path / "train.tsv").write_text("".join(rows[:33]))
    (tmp_path / "dev.tsv").write_text("".join([rows[0], *rows[33:]]))
    train.run(on_files(folder, tmp_path), tmp_path / "w", command=[])
    return tmp_path


def on_files(folder, place, **overrides):
    return tasks.config(
        "classify", f"files:{place}/{{split}}.tsv", folder, **{"epochs": 1, **overrides}
    )


@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.slow), "dev"])
def test_changed_data_is_noticed_on_resume(folder, started, split):
    file = started / f"{split}.tsv"
    file.write_text(file.read_text().replace("loud", "quiet").replace("late", "early"))
    with pytest.raises(ConfigError, match="trained on another corpus"):
        train.run(on_files(folder, started), started / "w", command=[])


@pytest.mark.slow
def test_a_resumed_run_may_change_what_it_is_told_to(folder, started, capfd):
    """Data that moved is the same data; steps follow from epochs and rows."""
    (started / "moved").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (started / name).rename(started / "moved" / name)
    with pytest.raises(ConfigError, match=r"task\.source"):
        train.run(on_files(folder, started / "moved", epochs=2), started / "w", command=[])
    allowed = ("task.source", "epochs")
    train.run(
        on_files(folder, started / "moved", epochs=2),
        started / "w",
        command=[],
        allow_change=allowed,
    )
    assert "at step 4" in capfd.readouterr().err
    assert max(line["step"] for line in tasks.lines(started / "w")) == 8
    changed = on_files(folder, started / "moved", epochs=2, checkpoints__best="accuracy")
    with pytest.raises(ConfigError, match="ranked by the first"):
        train.run(changed, started / "w", command=[], allow_change=(*allowed, "checkpoints.best"))


def test_the_best_metric_is_one_that_is_reported(folder, tmp_path):
    """Three classes have no binary F1: said before anything is compiled."""
    with pytest.raises(ConfigError, match=r"checkpoints\.best = 'f1' is not reported") as caught:
        data.gather(classify(folder, checkpoints__best="f1"))
    assert "macro_f1" in caught.value.hint


def test_a_config_reads_no_parameters_of_the_model_it_starts_from(trained, monkeypatch):
    """Several processes must not touch a device before they know of each other."""
    monkeypatch.setattr(runs, "open_run", None)
    found = load_file(f"configs/finetune.py:classify,init_from={trained}")
    assert found.model.hidden == 32
    assert runs.read_description(str(trained))[1] == trained / "tokenizer"


def test_a_head_of_other_classes_starts_fresh(folder, trained, tmp_path, capfd, one_device):
    """As many classes under other names are other classes."""
    file = tmp_path / "renamed.tsv"
    file.write_text((folder / "complaints.tsv").read_text().replace("billing", "zebra"))
    settings = {"init_from": str(trained), "optim__learning_rate": 0, "steps": 1, "epochs": "None"}
    config = tasks.config("classify", f"files:{file}", folder, **settings)
    with pytest.raises(ConfigError, match="lacks classify/logits"):
        train.run(config, tmp_path / "w", command=[])
    train.run(dataclasses.replace(config, init_fresh="^classify/"), tmp_path / "w", command=[])
    assert "classify/logits/kernel starts fresh" in capfd.readouterr().err


def test_training_ends_when_it_gets_no_better(folder, tmp_path, capfd, one_device):
    settings = {"epochs": 40, "checkpoints__patience": 2, "optim__learning_rate": 0}
    train.run(classify(folder, **settings), tmp_path / "w", command=[])
    every = runs.open_run(str(tmp_path / "w")).config.checkpoints.every
    assert (
        max(line["step"] for line in tasks.lines(tmp_path / "w")) == 3 * every
    )  # one to compare with, and two misses
    assert "ended early: 2 evaluations" in capfd.readouterr().err
    before = (tmp_path / "w" / "metrics.jsonl").read_bytes()
    train.run(classify(folder, **settings), tmp_path / "w", command=[])  # and stays ended
    assert (tmp_path / "w" / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_top_layers_can_start_fresh(folder, trained, tmp_path, one_device):
    """The others are the model's, bit for bit; the fresh ones are the run's own draw."""
    settings = {
        "init_from": str(trained),
        "optim__learning_rate": 0,
        "steps": 1,
        "epochs": "None",
        "seed": 9,
    }
    train.run(classify(folder, init_fresh_layers=1, **settings), tmp_path / "top", command=[])
    train.run(
        classify(folder, init_from="", **{k: v for k, v in settings.items() if k != "init_from"}),
        tmp_path / "new",
        command=[],
    )
    top, old, new = (
        trees.flat(runs.open_run(str(p)).params)
        for p in (tmp_path / "top", trained, tmp_path / "new")
    )
    for name, value in top.items():
        fresh = name.startswith(("encoder/pooler/", "encoder/layer_1/"))
        expected = new if fresh else old
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_features_train_a_head_alone_on_the_last_layers(folder, trained, tmp_path, one_device):
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


@pytest.mark.parametrize(
    "overrides",
    [
        {"parallel__step": "pmap"},
        {"parallel__fsdp": 4},
    ],
)
@pytest.mark.slow
def test_ways_over_devices_change_nothing(folder, plain, tmp_path, overrides):
    assert losses_of(folder, tmp_path / "w", **overrides) == pytest.approx(plain, rel=2e-5)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"tokenizer__path": ""}, "no vocabulary of its own"),
        ({"checkpoints__best": "mcc2"}, "is not reported for the classes of this task"),
        ({"task__metrics": "pearson", "checkpoints__best": ""}, "pearson. is not reported"),
        ({"task__long": "windows"}, "has no meaning for classify"),
        ({"model__features": 9}, "exceeds model.layers"),
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
        (
            "classify",
            ["the fan is loud\thardware", "the screen is broken\thardware"],
            {},
            r"data\.tsv",
        ),
        (
            *("classify", ["the fan is loud\thardware", f"{'again ' * 40}\tbilling"]),
            {"task__long": "refuse", "task__validation_fraction": 0},
            r"data\.tsv:3: 42 tokens",
        ),
        ("regress", ["the fan is loud\t1.5", "the refund is late\tNaN"], {}, r"data\.tsv:3: .*NaN"),
    ],
)
def test_bad_data_ends_with_its_place_before_anything_is_trained(
    folder, tmp_path, kind, rows, overrides, said
):
    file = tmp_path / "data.tsv"
    file.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    with pytest.raises(DataError, match=said) as caught:
        train.run(
            tasks.config(kind, f"files:{file}", folder, **overrides), tmp_path / "w", command=[]
        )
    assert caught.value.code == 3
    assert caught.value.hint
    assert not (tmp_path / "w" / "checkpoints").exists()
