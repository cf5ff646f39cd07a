"""A run that goes on is the run it was: what may change, and what is refused.

That it ends with the same bits after a kill is held by tests/net/test_devices.py and test_runs.py,
and on a GPU by tests/gpu. Folders that no run wrote are in tests/net/transcripts.
"""

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bert_jax.checkpoints import manifest
from bert_jax.config import knobs, to_dict
from bert_jax.errors import ConfigError
from bert_jax.training import resume
from bert_jax.training.data import load_training_data
from bert_jax.training.run import Run
from bert_jax.training.step import draw_state
from tests import saved, tasks, texts, tiny
from tests.checkpoints.states import flip_bit, list_bits, open_folder
from tests.updates import build_program

PRINTS = {"corpus": "a" * 64, "tokenizer": "b" * 64, "batches": "c" * 64}


def check_same(
    before: knobs.Config, after: knobs.Config, *allowed: str, best=None, **prints: str
) -> dict:
    """Resume a run with another config, and with other fingerprints of its data."""
    record = {"config": to_dict(before), **PRINTS, "best": best, "ledger": {"masked": 1}}
    current = {"config": to_dict(after), **PRINTS, **prints}
    return resume.check_same(record, current, allowed, Path("run"))


def check(changes: dict, *allowed: str, **prints: str) -> dict:
    """Resume a run of the tiny config with changes, and with other fingerprints of its data."""
    return check_same(tiny.config(), tiny.config(**changes), *allowed, **prints)


@pytest.mark.fault(7)
def test_resume_allows_what_is_free_or_named():
    """Knobs and hints are shown by tests/net/transcripts/train.txt, and train_changes.txt."""
    assert check({"masking__rate": 0.4}, "masking.rate")["ledger"] is None  # of other masks
    assert check({"logging__every": 3})["ledger"] == {"masked": 1}  # free to change
    assert check({"evals__validation__rate": 0.3}, "evals.validation.rate")  # no step is ranked
    assert check({"packing": 2}, "packing", batches="d" * 64)
    for prints, offers in (({}, True), ({"corpus": "d" * 64}, False)):
        with pytest.raises(ConfigError, match=r"tokenizer.vocab_size: ") as caught:
            check({"tokenizer__vocab_size": 99}, **prints)
        assert ("--allow-change" in caught.value.hint) == offers
    longer = {"steps": 200, "optim__warmup_fraction": 0.1}
    assert check(longer, "steps", "optim.warmup_fraction")


@pytest.mark.fault(7)
def test_resume_finds_the_same_vocabulary_elsewhere():
    before = tiny.config()
    tokenizer = dataclasses.replace(before.tokenizer, path="moved")
    moved = dataclasses.replace(before, tokenizer=tokenizer)
    assert check_same(before, moved)
    with pytest.raises(ConfigError, match=r"tokenizer.path: '' -> 'moved'"):
        check_same(before, moved, tokenizer="d" * 64)


@pytest.mark.parametrize("labelled", [True, False])
def test_resume_may_evaluate_another_split(tmp_path, labelled):
    """The corpus of a labelled task has the examples of this split; text is another corpus."""
    before = tasks.config("classify", "files:x.tsv", tmp_path) if labelled else tiny.config()
    validation = dataclasses.replace(before.evals["validation"], split="train")
    after = dataclasses.replace(before, evals={"validation": validation})
    refused = pytest.raises(ConfigError, match="on another corpus")
    with contextlib.nullcontext() if labelled else refused:
        check_same(before, after, corpus="d" * 64)


def test_moved_labels_keep_their_ranks(tmp_path):
    """Another way of windows measures otherwise."""
    before = tasks.config("classify", "files:x.tsv", tmp_path)
    for knob, value, best in (("source", "files:y.tsv", 1.0), ("long", "cut", None)):
        after = dataclasses.replace(before, task=dataclasses.replace(before.task, **{knob: value}))
        assert check_same(before, after, f"task.{knob}", best=1.0)["best"] == best


def open_run(config: knobs.Config, workdir: Path, resources: contextlib.ExitStack):
    """Open a run, and describe a program that restores its state."""
    data = load_training_data(config)
    shapes = jax.eval_shape(lambda: draw_state(config, data.tokenizer.size, np.uint32(0)))
    compiled = SimpleNamespace(describe_state=lambda: shapes)
    return Run(data.config, data, workdir, resources), compiled


@pytest.mark.fault(5)
def test_older_checkpoint_is_checked_too(base, tmp_path):
    """A resume that falls back to an older step, since the latest is damaged, drops its ledger."""
    config = texts.configure(base)
    checkpoints = saved.run(tmp_path, config, {10: None, 20: None}) / "checkpoints"
    flip_bit(checkpoints / "20/params/_METADATA")
    changed, allowed = texts.configure(base, masking__replace="(1,0,0)"), ("masking.replace",)
    with contextlib.ExitStack() as resources:
        one, compiled = open_run(changed, tmp_path, resources)
        assert one.check_resume(allowed)
        assert one.restore_or_init(compiled, None, allowed)[1] == 10
        assert one.saved["ledger"] is None
        with pytest.raises(ConfigError, match=r"masking\.replace: "):
            one.restore_or_init(compiled, 10, ())


def test_ranks_begin_anew_where_validation_changes(base, tmp_path, capsys):
    """Losses of longer and shorter rows are not compared."""
    config = texts.configure(base)
    checkpoints = saved.run(tmp_path, config, {10: 1.0, 20: 2.0}) / "checkpoints"
    manifest.write_evaluations(checkpoints / "20", 2.0, {"best": 1.0, "misses": 1})
    for length, best in ((config.sequence_length, 1.0), (16, None)):
        changed, allowed = texts.configure(base, sequence_length=length), ("sequence_length",)
        with contextlib.ExitStack() as resources:
            one, compiled = open_run(changed, tmp_path, resources)
            one.restore_or_init(compiled, None, allowed)
            one.begin_at(20, True, resources)
            assert (one.best, one.misses) == ((best, 1) if best else (None, 0))
    assert manifest.read_metrics(checkpoints) == ({10: None, 20: None}, [])
    assert capsys.readouterr().err.count("(sequence_length: 32 -> 16): ranks begin anew") == 1


@pytest.mark.fault(8)
def test_resume_splits_parameters_over_another_mesh(tmp_path):
    """A state of fsdp = 8 has the same bits under fsdp = 2, split as that program needs it.

    That training goes on as before is held by tests/training/test_distributed.py.
    """
    assert check({"parallel__fsdp": 2})  # free to change
    before, after = (
        build_program(tiny.config(parallel__fsdp=ways, model__layers=1)) for ways in (8, 2)
    )
    random = np.random.default_rng(0)
    drawn = jax.tree.map(lambda x: random.normal(0, 9, x.shape).astype(x.dtype), before.shapes)
    made = open_folder(tmp_path)
    made.save(1, jax.device_put(drawn, before.run_layout), {})
    resumed = made.restore(after.describe_state())[0]
    made.close()
    assert list_bits(resumed) == list_bits(drawn)
    layouts = [jax.tree.leaves(program.run_layout) for program in (before, after)]
    assert [leaf.sharding for leaf in jax.tree.leaves(resumed)] == layouts[1]
    assert layouts[0] != layouts[1]
