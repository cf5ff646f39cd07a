"""Runs that train together are the runs they would be alone, and one's failure is its own."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from bert_jax import train
from bert_jax.checkpoints import saving
from bert_jax.checkpoints.manifest import list_metrics, list_steps
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError, Stopped
from bert_jax.evaluation import corpus, inference
from bert_jax.training import program, run, runs, stop, trackers
from bert_jax.training.runs import Runs, last_common_step
from bert_jax.training.step import compute_inputs
from tests import fault_points, outcomes, texts
from tests.checkpoints.states import flip_bit, save_steps
from tests.texts import configure

SMALL = {"steps": 8, "logging__every": 1, "checkpoints__every": 4, "evals__validation__every": 4}
VARIED: tuple[dict[str, object], ...] = (
    {"masking__rate": 0.15, "seed": 3},
    {"masking__rate": 0.3, "masking__replace": "(1,0,0)", "optim__learning_rate": 2e-3},
    {"masking__phases": "((1.0,0.1,'linear'),)", "objectives__nsp__weight": 0.2},
)


def make_jobs(base: Path, folder: Path, **changes: object) -> list[tuple[knobs.Config, Path]]:
    configs = [configure(base, **SMALL | changes | one) for one in VARIED]
    return [(config, folder / str(index)) for index, config in enumerate(configs)]


@pytest.fixture(scope="module")
def fused(base, tmp_path_factory) -> Path:
    """Train all runs in one program, and count how often it was compiled."""
    folder = tmp_path_factory.mktemp("fused")
    made: list[program.Program] = []
    real = program.Program.__init__

    def note(self, *args, **settings) -> None:
        made.append(self)
        real(self, *args, **settings)

    with pytest.MonkeyPatch.context() as patch, texts.one_device():
        patch.setattr(program.Program, "__init__", note)
        train.train(make_jobs(base, folder))
    assert [one._update._cache_size() for one in made] == [1], "one program for all runs and steps"
    losses = [outcomes.logged(folder / name, "mlm_loss")[-1] for name in "012"]
    assert len(set(losses)) == 3
    return folder


def die_in_second(function: Callable) -> Callable:
    """Return a method of Checkpoints that raises an error for step 8 of the second run."""

    def call(self, step: int, *arguments) -> None:
        if step == 8 and self.folder.parent.name == "1":
            raise KeyboardInterrupt
        function(self, step, *arguments)

    return call


@pytest.mark.fault(1)
def test_killed_runs_go_on_from_a_common_step(base, fused, tmp_path, monkeypatch, one_device):
    """The first run has saved step 8, and the kill comes before the second has."""
    with monkeypatch.context() as patch:
        patch.setattr(saving.Checkpoints, "save", die_in_second(saving.Checkpoints.save))
        with pytest.raises(KeyboardInterrupt):
            train.train(make_jobs(base, tmp_path))
        patch.setattr(runs.Runs, "next_batch", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train.train(make_jobs(base, tmp_path))
    assert list_steps(tmp_path / "0" / "checkpoints") == [4], "as far as its metrics"
    train.train(make_jobs(base, tmp_path))
    for index in range(len(VARIED)):
        outcomes.assert_same(tmp_path / str(index), fused / str(index), 8)


@pytest.mark.fault(1)
def test_each_run_makes_what_it_owes(base, fused, tmp_path, monkeypatch, one_device):
    """The first run has noted its evaluation of step 8, and the kill comes before the second."""
    write = saving.Checkpoints.write_evaluations
    with monkeypatch.context() as patch:
        fault_points.stop_at(runs.Runs, "list_due", 8, patch.setattr)
        with pytest.raises(Stopped):
            train.train(make_jobs(base, tmp_path))
        patch.setattr(saving.Checkpoints, "write_evaluations", die_in_second(write))
        with pytest.raises(KeyboardInterrupt):
            train.train(make_jobs(base, tmp_path))
    train.train(make_jobs(base, tmp_path))
    for index in range(len(VARIED)):
        ours, theirs = (folder / str(index) for folder in (tmp_path, fused))
        assert outcomes.metrics(ours) == outcomes.metrics(theirs)
        assert list_metrics(ours) == list_metrics(theirs)


@pytest.mark.fault(6)
def test_diverged_run_is_frozen_and_others_go_on(base, fused, tmp_path, monkeypatch, one_device):
    def poison(config: knobs.Config, step: int):
        found = compute_inputs(config, step)
        if config.seed != 3 or step < 2:
            return found
        return found._replace(weights={**found.weights, "mlm": np.float32(np.nan)})

    ended: list[bool] = []
    monkeypatch.setattr(run, "compute_inputs", poison)
    monkeypatch.setattr(trackers.Trackers, "close", lambda _, finished: ended.append(finished))
    told: list[tuple[str, str]] = []
    train.train(
        make_jobs(base, tmp_path, optim__nonfinite_limit=3),
        on_diverged=lambda workdir, error: told.append((workdir.name, str(error)[:24])),
    )
    assert told == [("0", "3 updates in a row had a")]
    assert sorted(ended) == [False, True, True]
    assert outcomes.logged(tmp_path / "0", "skipped_in_row") == [0, 0, 1, 2]
    assert list_steps(tmp_path / "0" / "checkpoints") == [4]
    for name in "12":
        assert outcomes.metrics(tmp_path / name) == outcomes.metrics(fused / name)


def test_last_common_step_is_sound_in_all_runs(tmp_path, capsys):
    folders = [tmp_path / name / "checkpoints" for name in "ab"]
    save_steps(folders[0], 4, 8, 12)
    both = [SimpleNamespace(checkpoints=SimpleNamespace(folder=folder)) for folder in folders]
    assert last_common_step(both) == 0
    save_steps(folders[1], 4, 8)
    assert last_common_step(both) == 8
    flip_bit(folders[1] / "8" / "rest" / "_METADATA")
    assert last_common_step(both) == 4
    said = capsys.readouterr().err
    assert f"warning: checkpoint corrupt: {folders[1]}/8/rest/_METADATA" in said
    assert "all runs fall back to step 4" in said
    flip_bit(folders[0] / "4" / "manifest.json")
    with pytest.raises(CheckpointError, match=r"checkpoint corrupt: .*a/checkpoints/4/manifest"):
        last_common_step(both)


def test_runs_under_pmap_do_not_train_together(base, tmp_path):
    config = configure(base, parallel__step="pmap", batch_size=8)
    with pytest.raises(ConfigError, match="train together under jit"):
        train.train([(config, tmp_path / "a"), (config, tmp_path / "b")])


def test_evaluation_under_fsdp_gathers_no_activations(base, tmp_path, monkeypatch):
    """The compiler gathers parameters and a few integers, never floats of all rows."""
    changes = {"parallel__fsdp": 8, "model__layers": 2, "model__scan": True}
    config = configure(base, **changes, evals__validation__batch_size=48)
    programs: list[str] = []

    def compile_step(evaluator: corpus.Evaluator, params, *_) -> dict[str, float]:
        """Compile the evaluation's program where the loop would run it."""
        batch = evaluator.source.evaluation_batch(0, evaluator.rows)
        placed = inference.place_batch(batch, evaluator.mesh)
        lowered = evaluator.step.lower(params, placed, evaluator.step_inputs)
        programs.append(lowered.compile().as_text())
        return {"mlm_loss": 1.0}

    monkeypatch.setattr(corpus.Evaluator, "__call__", compile_step)
    with contextlib.ExitStack() as resources:
        mesh = program.mesh_for(config)
        flag = stop.StopFlag()
        jobs = [(config, tmp_path)]
        together = Runs(jobs, mesh, 0, lambda *_: None, flag, resources)
        state, start = together.restore_or_init()
        assert together.run_evaluations(["validation"], state, start) == []
    (compiled,) = programs
    gathered = re.findall(r"= f32\[([\d,]+)\][^=]*? all-gather\(", compiled)
    assert gathered, "parameters are split, and gathered where they are used"
    shapes = [shape.split(",") for shape in gathered]
    assert [shape for shape in shapes if len(shape) > 1 and int(shape[0]) % 48 == 0] == []
