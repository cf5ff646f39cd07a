"""What a run left behind, to be compared bit for bit: its arrays, its counters and its metrics."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bert_jax.checkpoints import manifest
from bert_jax.training import clock

# Time and rates, which no two runs share.
VOLATILE = ("time", *(f"train/{name}_seconds" for name in ("step", *clock.BUCKETS)))
VOLATILE += ("train/tokens_per_second", "train/data_wait", "train/model_flops_per_second")
VOLATILE += ("train/host_memory_bytes", "train/device_memory_bytes")
WALL = ("seconds", "clock")  # sums of them, in the record of a checkpoint


def state(workdir: Path, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Every leaf of a run's state at a step by name, and its meta."""
    folder = Path(workdir) / "checkpoints" / str(step)
    found: dict[str, np.ndarray] = {}
    as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
    for group in ("params", "rest"):
        if (folder / group).is_dir():
            handler = ocp.PyTreeCheckpointHandler()
            places = jax.tree.map(lambda _: as_numpy, handler.metadata(folder / group).tree)
            tree = handler.restore(folder / group, args=ocp.args.PyTreeRestore(restore_args=places))
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                found[f"{group}/{name}"] = leaf
    return found, json.loads((folder / "meta" / "metadata").read_text())


def read_lines(workdir: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl, every one whole."""
    lines = (Path(workdir) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def metrics(workdir: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl without time and rates."""
    lines = read_lines(workdir)
    return [{name: value for name, value in line.items() if name not in VOLATILE} for line in lines]


def by_step(workdir: Path) -> dict[int, dict[str, Any]]:
    """The metrics of each step, the last time that the step was made."""
    found: dict[int, dict[str, Any]] = {}
    for line in metrics(workdir):
        found.setdefault(line["step"], {}).update(line)
    return found


def logged(workdir: Path, name: str) -> list[float]:
    """Every value of a metric of training, in order."""
    return [row[f"train/{name}"] for row in metrics(workdir) if f"train/{name}" in row]


def samples(workdir: Path) -> list[dict[str, Any]]:
    """Lines of samples.jsonl, every one whole; none of a run that keeps none."""
    file = Path(workdir) / "samples.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def assert_same_arrays(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Two states have the same leaves, in every bit."""
    assert ours.keys() == theirs.keys()
    assert {"params", "rest"} == {name.partition("/")[0] for name in ours}
    different = [name for name in ours if ours[name].tobytes() != theirs[name].tobytes()]
    assert not different, f"{len(different)} of {len(ours)} leaves differ, such as {different[:3]}"


def assert_same(workdir: Path, reference: Path, step: int) -> None:
    """The run in `workdir` ended as the reference did, in every bit."""
    (ours, meta), (theirs, wanted) = state(workdir, step), state(reference, step)
    assert_same_arrays(ours, theirs)
    for name in WALL:
        assert meta.pop(name)
        assert wanted.pop(name)
    assert meta == wanted
    assert metrics(workdir) == metrics(reference)
    assert samples(workdir) == samples(reference)
    kept = manifest.list_steps(Path(workdir) / "checkpoints")
    wanted_steps = manifest.list_steps(Path(reference) / "checkpoints")
    assert kept == wanted_steps, "the same latest and best steps are kept"
