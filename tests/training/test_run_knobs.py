"""What knobs of a run change in what it leaves."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from bert_jax import config as configs
from bert_jax import sharding, train
from bert_jax.config import knobs, load_file, override, resolve
from bert_jax.data import pipeline, prepare
from bert_jax.evaluation import corpus as evaluation
from bert_jax.evaluation import metrics
from bert_jax.interop import runs
from bert_jax.studies import definition
from bert_jax.training import data as training_data
from bert_jax.training import program as steps
from bert_jax.training.writer import Writer
from tests import corpora, texts, toy

COUNTED = ("masked", "mask_token", "random", "kept", "quota", "asked", "expected")
COUNTED += ("predicted", "predict_quota")


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """The loop alone, ten steps of it; its update and its evaluations are stand-ins that compile
    nothing.
    """
    folder = tmp_path_factory.mktemp("knobs")
    tree = load_file(str(texts.config_file(folder)))
    for path, value in {
        "steps": 10,
        "batch_size": 8,
        "model.hidden": 32,
        "checkpoints.every": 2,
        "checkpoints.keep": 3,
        "checkpoints.at": 3,  # a step that is not a multiple, and that no later save removes
        "checkpoints.best": "",
        "logging.every": 3,
        "evals.validation.every": 4,
        "evals.last.every": 0,
    }.items():
        override(tree, path, str(value))
    nothing = {f"{name}_fraction": (0.0, 0.0) for name in COUNTED} | {"skipped_in_row": (0.0, 1.0)}
    worse = itertools.count(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            steps, "compile_update", lambda *_, **__: lambda state, batch, traced: (state, nothing)
        )
        patch.setattr(evaluation, "Evaluator", lambda *_: lambda params: {"mlm_loss": next(worse)})
        train.run(resolve(tree), folder / "run", command=[])
    return folder / "run"


@pytest.mark.slow
def test_a_run_saves_evaluates_and_logs_when_asked_to(ran):
    assert sorted(int(p.name) for p in (ran / "checkpoints").iterdir()) == [
        3,
        6,
        8,
        10,
    ]  # not 4, which was the best
    assert runs.open_run(str(ran)).step == 10
    lines = [json.loads(line) for line in (ran / "metrics.jsonl").read_text().splitlines()]
    at = {
        kind: [line["step"] for line in lines if any(key.startswith(kind) for key in line)]
        for kind in ("train/", "eval/validation/", "eval/last/")
    }
    assert at == {"train/": [3, 6, 9, 10], "eval/validation/": [4, 8, 10], "eval/last/": [10]}
    assert list((ran / "tensorboard").iterdir())


def evaluator(ran: Path, **settings: object) -> evaluation.Evaluator:
    config = runs.open_run(str(ran)).config
    chosen = knobs.Eval(**settings)  # type: ignore[arg-type]  # any of its fields
    return evaluation.Evaluator(
        config, prepare.prepare_corpus(config), chosen, sharding.make_mesh(knobs.Parallel())
    )


def masked(found: evaluation.Evaluator, b: dict) -> dict:
    """A batch under the masks of an evaluation; the special ids are those of toys."""
    return toy._apply(b, found.traced, knobs.Masking(), 32)[0]


def test_an_evaluation_predicts_the_share_it_names(ran):
    for rate in (0.15, 0.4):
        found = evaluator(ran, rate=rate)
        b = found.source.evaluation_batch(0, 16)
        predicted = masked(found, b)["predict_weights"].sum(1).tolist()
        assert predicted == [max(1, round(n * rate)) for n in (b["unit_ids"] >= 0).sum(1).tolist()]


def test_an_evaluation_has_units_pairs_and_masks_of_its_own(ran):
    config = runs.open_run(str(ran)).config
    prepared = prepare.prepare_corpus(config)
    for unit, seed in (("token", 0), ("word", 0), ("span", 5)):
        found = evaluator(ran, unit=unit, seed=seed)
        units = dataclasses.replace(config, masking=knobs.Masking(unit=unit))
        expected = pipeline.Source(prepared, "validation", units, seed=seed).evaluation_batch(0, 16)
        assert corpora.same(found.source.evaluation_batch(0, 16), expected)
    one, other = (evaluator(ran, seed=seed) for seed in (0, 1))
    b = one.source.evaluation_batch(0, 16)
    assert not corpora.same(b, other.source.evaluation_batch(0, 16))  # other pairs
    assert (
        masked(one, b)["inputs"] != masked(other, b)["inputs"]
    ).any()  # and other masks of the same pairs


def test_an_evaluation_without_a_size_takes_what_an_update_takes_at_once(ran):
    """A config keeps None, also where it is recorded; a change of it is no other run."""
    before = config = runs.open_run(str(ran)).config
    tree = configs.copied(configs.to_dict(config))
    configs.override(tree, "batch_size", "48")
    configs.override(tree, "optim.accumulation", "2")
    configs.override(tree, "evals.validation.batch_size", "None")
    config = configs.recorded(configs.to_dict(configs.resolve(tree)))
    assert config.evals["validation"].batch_size is None
    assert training_data.finalize(config, training_data.Facts()).evals == config.evals
    prepared, mesh = prepare.prepare_corpus(config), sharding.make_mesh(knobs.Parallel())
    found = evaluation.Evaluator(config, prepared, config.evals["validation"], mesh)
    assert found.rows == 24
    assert definition.identity(config) == definition.identity(
        dataclasses.replace(config, evals=before.evals)
    )


@pytest.mark.parametrize(("size", "rows"), [(1, 8), (8, 8), (13, 16)])
def test_an_evaluation_takes_batches_of_its_size(ran, size, rows):
    """Rounded up to the devices; that the result stays the same is shown in test_train."""
    found = evaluator(ran, batch_size=size)
    assert (found.rows, len(found._plan())) == (rows, -(-found.source.examples_per_epoch // rows))


@pytest.mark.parametrize(("name", "better"), [("mlm_loss", 0.5), ("nsp_accuracy", 0.7)])
def test_the_best_step_is_by_the_metric_named(name, better):
    """The lower is kept, and of an accuracy the higher; that its checkpoint stays is shown in
    test_train.
    """
    one, other = {"mlm_loss": 0.5, "nsp_accuracy": 0.6}, {"mlm_loss": 0.9, "nsp_accuracy": 0.7}
    assert min((one, other), key=lambda found: metrics.as_lower(name, found[name]))[name] == better


def test_events_are_written_where_asked_for(tmp_path):
    for index, settings in enumerate(({}, {"trackers": ()})):
        folder, wanted = tmp_path / str(index), not settings
        folder.mkdir()
        names = resolve({"logging": settings}).logging.trackers
        made = Writer(folder, 10, 0, names)
        made.write(1, {"train/loss": 1.0})
        made.close()
        assert bool(list(folder.rglob("events*"))) == wanted
