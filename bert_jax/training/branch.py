"""Branches: runs that begin at a checkpoint of another run, their trunk.

A branch is, to the bit, the run that its config makes from step 0, but it need not repeat the
updates before the fork. So every number that those updates take must be the same in both configs.
Knobs may differ that act only later, as the length does under `optim.schedule=wsd`.

A branch records a digest of all that the updates before the fork depend on, and no path of its
trunk. The digest follows from the branch's own config and data, so a branch resumes without its
trunk.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax import config as configs
from bert_jax.checkpoints import reading
from bert_jax.config import costs, knobs
from bert_jax.errors import ConfigError, need
from bert_jax.system import opening
from bert_jax.training.resume import RANKING
from bert_jax.training.step import State, compute_inputs

FINGERPRINTS = ("corpus", "tokenizer", "batches")
LENGTHS = ("steps", "epochs")  # they act through the schedules of numbers
# What a run keeps next to its state and a branch goes on with; lines and seconds are its own.
CARRIED = ("ledger", "best", "misses", "window")


def with_digest(config: knobs.Config, fingerprints: Mapping[str, str]) -> knobs.Config:
    """Return the config to record for a run: its `branch_from` has a digest, not a path."""
    step = config.trunk[1]
    if not step:
        return config
    return dataclasses.replace(
        config, branch_from=f"{hash_updates(config, step, fingerprints)}@{step}"
    )


def hash_updates(config: knobs.Config, steps: int, fingerprints: Mapping[str, str]) -> str:
    """Return a hash of all that the first `steps` updates of a run depend on.

    Only the devices are left out.
    """
    known = configs.list_usual_values()
    fixed = {
        path: value for path, value in _list_fixed(config).items() if known.get(path, ...) != value
    }
    data = [fingerprints[name] for name in FINGERPRINTS]
    text = json.dumps([steps, fixed, costs.own_slots(config), data], sort_keys=True)
    found = hashlib.sha256(text.encode())
    before: dict[str, Any] = {}
    for index, step_inputs in enumerate(_list_inputs(config, steps)):
        for place, (name, value) in enumerate(step_inputs.items()):
            if not before or not _is_equal(value, before[name]):  # most never change
                found.update(f"{index} {place} ".encode() + np.asarray(value).tobytes())
        before = step_inputs
    return found.hexdigest()[:12]


def start_branch(
    config: knobs.Config, fingerprints: Mapping[str, str], run: Path, like: Any
) -> tuple[State, dict[str, Any]]:
    """Return the state at the fork, and what the branch continues of the trunk's record.

    `like` has the shapes and shardings of the state. The record has counts such as the ledger.
    """
    step = config.trunk[1]
    _refuse_other_trunk(config, fingerprints, run)
    restored = reading.read_state(run / "checkpoints", like, step)
    assert restored is not None
    state, meta, _ = restored
    return state, carry_record(config, meta)


def carry_record(config: knobs.Config, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a trunk's record as far as a branch continues it: `best` only if both rank alike."""
    carried = {name: meta[name] for name in CARRIED if name in meta}
    before = configs.to_dict(configs.read_recorded(meta["config"]))
    if configs.differences(before, configs.to_dict(config)).keys() & set(RANKING):
        carried |= {"best": None, "misses": 0}
    return carried


def check_trunk(config: knobs.Config) -> None:
    """Refuse a branch whose trunk is missing, damaged, or of a config with other updates.

    The data of the two runs is not compared. Nor are the updates of a run over epochs of text,
    because its steps are counted when the text is prepared.
    """
    name, step = config.trunk
    run = opening.expand_home(name)
    reading.choose_together(run / "checkpoints", step)  # the arrays are sound too
    if config.epochs is None or config.task.source:
        _refuse_other_trunk(config, {}, run)


def _refuse_other_trunk(config: knobs.Config, fingerprints: Mapping[str, str], run: Path) -> None:
    """Refuse a trunk whose updates up to the fork differ from the run's; name the difference.

    Refuse also a fork whose evaluations a stop signal left out: the best value, which a branch goes
    on with, lacks them.
    """
    step = config.trunk[1]
    found = reading.read_meta(run / "checkpoints", step)
    assert found is not None
    meta = found[0]
    there = configs.read_recorded(meta["config"])
    owed = [name for name in config.evals if name in meta.get("owed", [])]
    need(
        not owed,
        f"{run}@{step}: a stop signal left out its evaluations ({', '.join(owed)})",
        "resume that run, which makes up for them",
    )

    def refuse(what: str, old: Any, new: Any, at: int = 1) -> None:
        hint = "change it back, or train without branch_from"
        if at > 1:
            hint = f"a branch may begin at step {at - 1} or before"
        raise ConfigError(
            f"{run}@{step} is no trunk of this run: {what} differs at step {at}, "
            f"{old} there and {new} here",
            hint,
        )

    for path, (old, new) in configs.differences(_list_fixed(there), _list_fixed(config)).items():
        refuse(path, repr(old), repr(new))
    for name, value in fingerprints.items():
        if meta[name] != value:
            refuse(f"the {name}", meta[name][:12], value[:12])
    slots = costs.own_slots(there), costs.own_slots(config)
    if slots[0] != slots[1]:
        refuse("the number of prediction slots a row, by the largest rate of the run,", *slots)
    pairs = zip(_list_inputs(there, step), _list_inputs(config, step), strict=True)
    for index, (theirs, ours) in enumerate(pairs):
        for name in theirs | ours:
            old = np.asarray(theirs.get(name))
            new = np.asarray(ours.get(name))
            if _is_equal(old, new):
                continue
            if old.shape != new.shape:  # one of the rates is drawn, the other is not
                refuse(name, "a table" if old.ndim else old, "a table" if new.ndim else new)
            place = tuple(np.argwhere(old != new)[0].tolist())
            refuse(f"{name}{list(place) or ''}", str(old[place]), str(new[place]), index + 1)


def _list_inputs(config: knobs.Config, steps: int) -> Iterator[dict[str, Any]]:
    """Yield {name: value} of the step inputs of each of the first `steps` updates.

    Names are such as `weights.mlm`.
    """
    for index in range(steps):
        leaves = jax.tree_util.tree_leaves_with_path(compute_inputs(config, index))
        yield {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def _is_equal(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)


def _list_fixed(config: knobs.Config) -> dict[str, Any]:
    """Return {path: value} of the knobs that must be equal in trunk and branch.

    Any other knob is compared by the step inputs or by the fingerprints of the data, or it may
    change.
    """
    fixed = {}
    for path, value in configs.flatten(configs.to_dict(config)).items():
        traits = configs.find_traits(path)
        varies = traits.place or traits.traced or configs.free_on_resume(path)
        if not varies and path not in (*LENGTHS, "branch_from"):
            fixed[path] = value
    return fixed
