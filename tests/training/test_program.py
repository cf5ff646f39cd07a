"""Runs that train together are the runs they would be alone, and what befalls one does not touch
the others.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import sharding, train
from bert_jax.checkpoints import saving
from bert_jax.config import knobs, resolve, to_dict
from bert_jax.data import pipeline, prepare
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.evaluation import corpus
from bert_jax.evaluation.metrics import Totals
from bert_jax.masking import quotas
from bert_jax.training import program as steps
from bert_jax.training import run, runs
from bert_jax.training.run import Run
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import fault_points, outcomes, texts
from tests.texts import configure

make_mesh = sharding.make_mesh  # the real one

# Whatever is traced, or read by the host alone, differs somewhere.
ARMS = (
    {"masking__rate": 0.15},
    {"masking__rate": 0.4, "masking__prediction_rate": 0.2, "masking__replace": "(1,0,0)"},
    {
        "masking__rate": 0.3,
        "masking__phases": "((1.0,0.15,'linear'),)",
        "objectives__nsp__weight": 0.2,
    },
    {
        "seed": 3,
        "optim__learning_rate": 2e-3,
        "optim__weight_decay": 0.1,
        "optim__schedule": "cosine",
    },
)
SMALL = {"steps": 20, "logging__every": 1, "checkpoints__every": 10, "evals__validation__every": 10}
SMALL |= {"model__dropout": 0.1, "logging__samples": 12}


@pytest.fixture(scope="module", autouse=True)
def one_device():
    """But for the last tests, which make their meshes from all eight."""
    with texts.one_device():
        yield


def together(base: Path, folder: Path, arms=ARMS, slots: int = 0, **knobs: object) -> list[Path]:
    runs = [(configure(base, **SMALL | knobs | arm), folder / str(ARMS.index(arm))) for arm in arms]
    train.train(runs, slots=slots, command=[])
    return [workdir for _, workdir in runs]


@pytest.fixture(scope="module")
def fused(base, tmp_path_factory) -> list[Path]:
    """All arms in one program, and how often that was compiled."""
    compiled = []
    real = steps.compile_update

    def spy(*args, **settings):
        compiled.append(real(*args, **settings))
        return compiled[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "compile_update", spy)
        found = together(base, tmp_path_factory.mktemp("fused"))
    assert [update._cache_size() for update in compiled] == [1], (
        "one program for all arms and all steps"
    )
    return found


def metric(workdir: Path, name: str) -> np.ndarray:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return np.array([line[name] for line in lines if name in line])


@pytest.mark.parametrize(
    "index", [*(pytest.param(i, marks=pytest.mark.slow) for i in (0, 2, 3)), 1]
)
def test_an_arm_is_the_run_it_would_be_alone(base, fused, index, tmp_path):
    alone = tmp_path / "alone"
    train.run(configure(base, **SMALL | ARMS[index]), alone, command=[])
    for name in ("train/loss", "train/mlm_loss", "train/nsp_loss"):
        np.testing.assert_allclose(
            metric(fused[index], name), metric(alone, name), atol=1e-4, err_msg=name
        )
    for name in (
        "masked_fraction",
        "mask_token_fraction",
        "random_fraction",
        "predicted_fraction",
        "learning_rate",
    ):
        a, b = (metric(folder, f"train/{name}") for folder in (fused[index], alone))
        np.testing.assert_array_equal(a, b, err_msg=name)  # the very same masks
    assert (fused[index] / "report.html").exists()
    written = [json.loads((folder / "config.json").read_text()) for folder in (fused[index], alone)]
    assert written[0] == written[1]
    shown = [outcomes.samples(folder) for folder in (fused[index], alone)]
    assert [row["text"] for row in shown[0]] == [row["text"] for row in shown[1]]
    np.testing.assert_allclose(
        *([row["predictions"][0][0]["probability"] for row in own] for own in shown), atol=1e-3
    )
    np.testing.assert_allclose(
        metric(fused[index], "eval/validation/mlm_loss"),
        metric(alone, "eval/validation/mlm_loss"),
        atol=1e-3,
    )


def test_arms_are_shown_the_same_sentences_and_see_them_their_own_way(base, fused):
    rows = [outcomes.samples(folder) for folder in fused]
    asked = [[(row["step"], row["text"], row["answers"]) for row in own] for own in rows]
    assert asked == asked[:1] * len(fused)
    assert len(asked[0]) == 2 * 12
    assert len({json.dumps(own) for own in rows}) == len(fused)


def test_arms_differ(fused):
    losses = [metric(folder, "train/mlm_loss")[-1] for folder in fused]
    assert len(set(losses)) == len(losses)


@pytest.mark.slow
def test_fewer_arms_of_the_same_slots_are_the_same_in_every_bit(base, fused, tmp_path):
    """As when the others have finished before an interruption."""
    slots = max(quotas.count_slots(configure(base, **SMALL | arm).masking, 32) for arm in ARMS)
    for index, folder in zip(
        (0, 2), together(base, tmp_path, (ARMS[0], ARMS[2]), slots), strict=True
    ):
        outcomes.assert_same(folder, fused[index], 20)


@pytest.mark.slow
@pytest.mark.parametrize("at", [13, 20])
def test_killed_arms_go_on_from_the_step_all_have_saved(base, fused, tmp_path, monkeypatch, at):
    """At 20 some arms have saved the last step and others have not."""

    def die(name: str, index: int) -> None:
        if (name, index) in (("step", at), ("save-start", at)):
            died.append(index)
            if name == "step" or len(died) == 3:
                raise KeyboardInterrupt

    save = saving.Checkpoints.save

    def die_saving(self: Any, step: int, *args: Any, **kwargs: Any) -> None:
        die("save-start", step)
        save(self, step, *args, **kwargs)

    died: list[int] = []
    if at == 20:
        died.append(0)  # the step itself passes
    with monkeypatch.context() as patch:
        if at == 13:
            fault_points.plant(runs, die, patch.setattr)
        patch.setattr(saving.Checkpoints, "save", die_saving)
        with pytest.raises(KeyboardInterrupt):
            together(base, tmp_path)
    for folder, whole in zip(together(base, tmp_path), fused, strict=True):
        outcomes.assert_same(folder, whole, 20)


def test_runs_say_that_they_begin_anew(base, tmp_path, capfd):
    """One of two runs is saved: the two of them begin anew, and nothing is resumed."""
    short = {"steps": 2, "checkpoints__every": 2, "evals__validation__every": 2}
    together(base, tmp_path, ARMS[:1], **short)
    capfd.readouterr()
    saved, unsaved = together(base, tmp_path, ARMS[:2], **short)
    said = capfd.readouterr().err
    assert f"2 runs begin anew: nothing is saved in {unsaved}" in said
    assert "resuming" not in said
    assert metric(saved, "train/loss").shape == (2,)


@pytest.mark.slow  # studies/test_worker.py has a quick one
def test_an_arm_that_diverges_is_frozen_and_the_others_do_not_notice(
    base, fused, tmp_path, monkeypatch
):
    real = compute_inputs

    def poisoned(config, step):
        found = real(config, step)
        bad = config.seed == 3 and step >= 11
        return (
            found._replace(weights={**found.weights, "mlm": np.float32(np.nan)}) if bad else found
        )

    told: list[tuple[Path, DivergedError]] = []
    runs = [(configure(base, **SMALL | arm), tmp_path / str(i)) for i, arm in enumerate(ARMS)]
    with monkeypatch.context() as patch:
        patch.setattr(run, "compute_inputs", poisoned)
        train.train(
            runs, command=[], on_diverged=lambda workdir, error: told.append((workdir, error))
        )
    assert [(workdir.name, str(error)[:24]) for workdir, error in told] == [
        ("3", "5 updates in a row had a")
    ]
    for folder, whole in zip([workdir for _, workdir in runs[:3]], fused, strict=False):
        outcomes.assert_same(folder, whole, 20)
    assert max(metric(runs[3][1], "step")) == 15
    with monkeypatch.context() as patch:
        patch.setattr(run, "compute_inputs", poisoned)
        with pytest.raises(DivergedError):  # nobody is left
            train.train([(runs[3][0], tmp_path / "alone")], command=[])


@pytest.mark.parametrize(
    ("how", "arms"),
    [
        ("map", 2),
        ("map", 8),
        ("vmap", 2),
        ("vmap", 8),
    ],
)
@pytest.mark.slow
def test_arms_lie_on_devices_of_their_own(base, how, arms):
    """The update of several states over a mesh of arms and rows equals that of each by itself."""
    config = configure(base, parallel__arms=how, masking__rate=0.4, batch_size=8)
    several = [resolve(to_dict(config) | {"seed": seed}) for seed in range(arms)]
    mesh = make_mesh(config.parallel, arms)
    assert dict(mesh.shape) == {"run": arms, "data": 8 // arms, "fsdp": 1}
    prepared = prepare.prepare_corpus(config, log=lambda line: None)
    source, special, size = (
        pipeline.Source(prepared, "train", config),
        prepared.tokenizer.special,
        prepared.tokenizer.size,
    )
    states = [
        jax.jit(lambda seed: init_state(config, size, seed))(np.uint32(one.seed)) for one in several
    ]
    layout = sharding.state_shardings(states[0], mesh)
    whole = steps.add_run_axis(layout, mesh)
    update = steps.compile_update(config, special, size, mesh, whole, run_axis=True)
    numbers = jax.tree.map(
        lambda *each: np.stack(each), *(compute_inputs(one, 6) for one in several)
    )
    batch = sharding.place(source.batch(0), 8, mesh)
    stacked, metrics = update(steps.stack_states(states, whole), batch, numbers)
    assert (
        len(
            {shard.device for leaf in jax.tree.leaves(stacked) for shard in leaf.addressable_shards}
        )
        == 8
    )
    single = jax.jit(make_update(config, special, size))
    for index in (0, arms - 1):
        expected, found = single(states[index], source.batch(0), compute_inputs(several[index], 6))
        for name, pair in found.items():
            got = [np.asarray(x)[index] for x in metrics[name]]
            np.testing.assert_allclose(
                got, [np.asarray(x) for x in pair], rtol=1e-4, atol=1e-6, err_msg=name
            )
        mine = steps.pick_run(stacked, index, layout)
        for a, b in zip(
            jax.tree.leaves(mine["optimizer"]), jax.tree.leaves(expected["optimizer"]), strict=True
        ):
            np.testing.assert_allclose(
                a, b, rtol=1e-3, atol=1e-6
            )  # moments, as weights drift in Adam


@pytest.mark.parametrize("prng", ["threefry2x32", "rbg"])
def test_dropout_of_an_arm_is_that_of_its_seed_whatever_draws_it(prng):
    """Under vmap the faster generators would draw other bits than alone."""

    def update(state, batch, traced):
        key = jax.random.fold_in(jax.random.key(traced, impl=prng), state)
        return state + 1, jax.random.bernoulli(key, 0.5, (64,)) + batch

    mesh = make_mesh(knobs.Parallel(data=8), 3)
    mapping = steps._choose_mapping(knobs.Parallel(arms="vmap", prng=prng))
    several = steps._map_over_runs(update, mesh, mapping)
    _, drawn = jax.jit(several)(np.zeros(3, np.int32), np.int32(0), np.arange(3, dtype=np.uint32))
    for seed in range(3):
        alone = jax.jit(update)(np.int32(0), np.int32(0), np.uint32(seed))[1]
        np.testing.assert_array_equal(drawn[seed], alone)


def test_what_cannot_train_together_says_so(base, tmp_path):
    config = configure(base, parallel__step="pmap", batch_size=8)
    with pytest.raises(ConfigError, match="train together under jit"):
        train.train([(config, tmp_path / "a"), (config, tmp_path / "b")], command=[])


# --- nothing counted ------------------------------------------------------------------------------


def test_totals_of_nothing_are_no_result():
    """A loss of 0.0 would be the best there is, and a majority of 1.0 the highest."""
    zero = (0.0, 0.0)
    sums = {
        "mlm_loss": zero,
        "mlm_accuracy": zero,
        "nsp_loss": zero,
        "nsp_accuracy": zero,
        "first_label": zero,
    }
    totals = Totals(sums | {"unigram_loss": zero, "unigram_accuracy": zero, "examples": (3.0, 1.0)})
    config = SimpleNamespace(objectives=("mlm", "nsp"))
    found = corpus.Evaluator._finish(SimpleNamespace(config=config), totals)
    assert (found["examples"], found["mlm_predictions"]) == (3, 0)
    for name in (
        "mlm_loss",
        "mlm_accuracy",
        "unigram_loss",
        "nsp_loss",
        "nsp_accuracy",
        "majority_accuracy",
    ):
        assert math.isnan(found[name]), name


def test_evaluation_of_nothing_is_never_the_best():
    arm = SimpleNamespace(
        config=SimpleNamespace(checkpoints=SimpleNamespace(best="mlm_loss")),
        writer=SimpleNamespace(write=lambda *_: None),
        best=None,
        misses=0,
        rank=None,
    )
    seen = []
    for step, loss in enumerate((math.nan, 2.0, math.nan, 1.0, math.nan)):
        Run.evaluated(arm, "validation", {"mlm_loss": loss}, step)
        seen.append((arm.rank, arm.best, arm.misses))
    assert seen == [
        (None, None, 0),
        ((1, 2.0), 2.0, 0),
        ((1, 2.0), 2.0, 1),
        ((3, 1.0), 1.0, 0),
        ((3, 1.0), 1.0, 1),
    ]
