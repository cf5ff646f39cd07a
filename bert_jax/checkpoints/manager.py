"""Checkpoints: Orbax saves asynchronously, a sha256 manifest makes a step trusted, restore trusts nothing else.

    1000/params/ rest/ meta/   written by Orbax: arrays, arrays, plain JSON
    1000/manifest.json         sha256 and size of each of those files; the arrays' names, shapes, dtypes; the metric

Orbax alone does not notice a flipped bit and takes an empty folder for a step. A step is deleted only once a newer one
has its manifest.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax import trees
from bert_jax.checkpoints import manifest
from bert_jax.errors import CheckpointError, DivergedError, PeerLost, UserError
from bert_jax.system import disk, fault_points

PyTree = Any
WHAT = "a checkpoint"
LATE = "Event loop is closed"  # asyncio's words to what comes back to a loop that has ended
SPARE = 1 << 20  # bytes Orbax writes beside the arrays, generously
STARTING = (
    threading.Lock()
)  # Orbax numbers the saves of a process, and takes one that begins beside it for its own
HEAD_START = (
    0.02  # seconds for the caller to start its next update, before a save wants Python's lock too
)


class Checkpoints:
    """The checkpoints of one run: the `keep` latest and, by the lowest metric, the best."""

    def __init__(self, folder: Path, keep: int, keep_best: bool):
        self.folder, self.keep, self.keep_best = Path(folder).absolute(), keep, keep_best
        self._orbax = _orbax()
        self._thread: threading.Thread | None = None
        self._error: UserError | None = None
        self._current: int | None = None  # the step this run last saved or restored
        self._peeked: int | None = (
            None  # found sound by `peek`: not hashed again by the restore that follows
        )
        self._corrupt: set[int] = set()

    def save(
        self, step: int, state: PyTree, meta: dict[str, Any], metric: float | None = None
    ) -> None:
        """Starts to save; blocks while an earlier save runs and while arrays are copied, no longer.

        `wait` or `close` before the process ends, or the last save is lost.
        """
        self.wait()
        if step == self._current:
            return  # it is on disk already, and replacing it would leave a moment without
        here = (
            jax.process_count() == 1 and jax.default_backend() == "cpu"
        )  # where a copy is host memory, and cheap
        if here:
            state = _copied(state)  # the caller's next update may donate its own
        check_finite(state["params"])
        needed = bytes_needed(state)
        with disk.room(self.folder, needed, WHAT):
            self.folder.mkdir(parents=True, exist_ok=True)
        disk.check_space(self.folder, needed, WHAT)
        fault_points.point("save-start", step)
        meta = json.loads(json.dumps({"step": step, **meta}))  # a copy: the caller goes on counting
        arrays = _split(state)
        metric = metric if metric is not None and math.isfinite(metric) else None
        entry = {
            "step": step,
            "metric": metric,
            "arrays": {item: _describe(a) for item, a in arrays.items()},
        }
        saves: dict[str, Any] = {item: ocp.args.PyTreeSave(a) for item, a in arrays.items()}
        target = ocp.args.Composite(**saves, meta=ocp.args.JsonSave(meta))
        # Only steps of an abandoned attempt are in the way: they are newer than the step restored.
        begin = functools.partial(self._orbax.save, self.folder / str(step), target, force=True)
        if not here:  # Orbax copies to the host, and hosts agree on names, before it returns
            try:
                begin()
            except (
                OSError,
                ValueError,
                RuntimeError,
            ) as error:  # how Orbax and TensorStore report a failed write
                raise self._failed(step, needed, error) from error
        self._current, self._peeked = step, None
        finish = functools.partial(self._finish, begin if here else None, step, entry, needed)
        self._thread = threading.Thread(target=finish, name="checkpoint-manifest")
        self._thread.start()

    def restore(
        self, like: PyTree, step: int | None = None
    ) -> tuple[PyTree, dict[str, Any], int] | None:
        """State, meta and step of the last verified step (or of `step`), placed as `like` says; None: nothing there."""
        found = self._find(step)
        if found is None:
            return None
        source, wanted = self.folder / str(found), _split(like)
        _compare(wanted, manifest.load(source)["arrays"], source)
        arrays, meta = _load(self._orbax, source, wanted)
        self._current = found
        flat = {f"params/{n}": x for n, x in arrays["params"].items()} | arrays.get("rest", {})
        return (
            jax.tree.unflatten(jax.tree.structure(like), [flat[name] for name in _named(like)]),
            meta,
            found,
        )

    def peek(self) -> tuple[dict[str, Any], int] | None:
        """Meta and step of what `restore` would take, to compare before anything is built."""
        self._peeked = found = self._find(None)
        return (
            None if found is None else (_load(self._orbax, self.folder / str(found), {})[1], found)
        )

    def steps(self) -> list[int]:
        """Steps that have a manifest, oldest first."""
        return manifest.finished(self.folder)

    def best(self) -> int | None:
        """The step of the lowest metric, or the latest where none has one."""
        return manifest.best(self.folder, [s for s in self.steps() if s not in self._corrupt])

    def wait(self) -> None:
        """Blocks until the last save is verified; raises what went wrong with it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            self._current = None
            raise error

    def close(self) -> None:
        """Waits, then lets go of Orbax's threads."""
        try:
            self.wait()
        finally:
            _close(self._orbax)

    def _find(self, step: int | None) -> int | None:
        """Process 0 verifies and decides, so that hosts neither read everything twice nor disagree."""
        self.wait()
        peeked, self._peeked = self._peeked, None
        if step is None and peeked is not None:
            return peeked
        found: int | None = None
        error = CheckpointError(
            f"process 0 found no sound checkpoint in {self.folder}", "its message says more"
        )
        if jax.process_index() == 0:
            try:
                found = manifest.choose(self.folder, step, self._corrupt)
            except CheckpointError as failure:
                error, found = failure, -2
        if jax.process_count() > 1:
            code = int(
                multihost_utils.broadcast_one_to_all(np.int32(-1 if found is None else found))
            )
            found = None if code == -1 else code
        if found == -2:
            raise error
        return found

    def _finish(
        self, begin: Callable[[], None] | None, step: int, entry: dict[str, Any], needed: int
    ) -> None:
        try:
            if begin is not None:
                time.sleep(HEAD_START)
                with STARTING:
                    begin()
            fault_points.point("save-running", step)
            self._orbax.wait_until_finished()  # on several hosts: until every host has written
            fault_points.point("save-committed", step)
            if jax.process_index() == 0:
                manifest.write(self.folder / str(step), entry)
                fault_points.point("manifest-written", step)
                self._prune(step)
        except (
            Exception
        ) as error:  # a thread has nobody to raise to: `wait` raises it in the caller
            self._error = CheckpointError(
                f"cannot write the checkpoint of step {step}: {error}"
            )  # if all else fails
            self._error = self._failed(step, needed, error)
            self._error.__cause__ = error

    def _prune(self, step: int) -> None:
        """Deletes what is older than `step`, now verified, and neither among the latest nor the best."""
        mine = [s for s in self.steps() if s <= step and s not in self._corrupt - {step}]
        kept: set[int | None] = {
            *mine[-self.keep :],
            *([manifest.best(self.folder, mine)] if self.keep_best else []),
        }
        for old in manifest.step_folders(self.folder):
            if old < step and old not in kept:
                if old in mine and manifest.readable(self.folder / str(old)) is None:
                    manifest.warn(
                        f"checkpoint corrupt: {self.folder / str(old) / manifest.NAME}; step {old} is deleted"
                    )
                (self.folder / str(old) / manifest.NAME).unlink(
                    missing_ok=True
                )  # first: half a step is no step
                shutil.rmtree(self.folder / str(old))
        self._remove_unfinished()
        self._corrupt.discard(step)

    def _failed(self, step: int, needed: int, error: Exception) -> UserError:
        """A failed write as the user's error, once what it left behind is gone."""
        if (
            jax.process_count() == 1
        ):  # it would raise this error again, wherever it is next waited for
            # Of the coroutines that it then leaves unfinished, Python would tell the user.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            _close(self._orbax)
            self._orbax = _orbax()
        if jax.process_index() == 0:
            self._remove_unfinished()
            if step not in self.steps():
                shutil.rmtree(self.folder / str(step), ignore_errors=True)
        if disk.is_full(error):
            return disk.full(self.folder, needed, WHAT)
        if jax.process_count() > 1 and PeerLost.explains(
            error
        ):  # processes meet before and after they write
            return PeerLost()
        what = f"cannot write the checkpoint of step {step} in {self.folder}"
        return CheckpointError(
            f"{what}: {type(error).__name__}: {error}", "earlier steps are intact"
        )

    def _remove_unfinished(self) -> None:
        for folder in self.folder.glob(manifest.UNFINISHED):
            shutil.rmtree(folder, ignore_errors=True)  # only space is lost; it is never read


def read(folder: Path, step: int | None = None) -> tuple[PyTree, dict[str, Any]]:
    """Parameters as nested dicts of numpy arrays, and meta, of the best (else latest) sound step of a run.

    `folder` is a run's folder, its checkpoints folder, or one step's.
    """
    folder = Path(folder).absolute()
    if (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    elif step is None and folder.name.isdigit() and (folder / manifest.NAME).exists():
        folder, step = folder.parent, int(folder.name)
    found = manifest.choose(folder, step, set(), best_first=True)
    if found is None:
        raise CheckpointError(
            f"no checkpoint in {folder}", "give the folder of a run, or of one of its steps"
        )
    described = manifest.load(folder / str(found))["arrays"]["params"]
    like = {
        n: jax.ShapeDtypeStruct(tuple(d["shape"]), jnp.dtype(d["dtype"]))
        for n, d in described.items()
    }
    orbax = _orbax()
    arrays, meta = _load(orbax, folder / str(found), {"params": like})
    orbax.close()
    return trees.nested(arrays["params"]), meta


def bytes_needed(state: PyTree) -> int:
    """What one checkpoint of `state` takes on disk, at most; arrays or shapes."""
    return SPARE + sum(
        math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(state)
    )


def check_finite(params: PyTree) -> None:
    """Weights that are not finite must never become the latest checkpoint."""
    named = {n: x for n, x in _named(params).items() if jnp.issubdtype(x.dtype, jnp.inexact)}
    finite = _finite(list(named.values()))
    values = np.asarray(finite.addressable_data(0))
    if not values.all():
        bad = [name for name, good in zip(named, values, strict=True) if not good]
        raise DivergedError(
            f"not saved: {len(bad)} of {len(named)} parameters are not finite, the first is {bad[0]}",
            "go on from the last checkpoint with a lower optim.learning_rate, or optim.clip_norm set",
        )


@jax.jit
def _copied(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, tree)


@jax.jit
def _finite(leaves: list[jax.Array]) -> jax.Array:
    return jnp.stack([jnp.isfinite(x).all() for x in leaves]) if leaves else jnp.ones((1,), bool)


# --- trees and Orbax ------------------------------------------------------------------------------------------------


def _raised_anyway(record: logging.LogRecord) -> bool:
    """Keeps back the tracebacks that Orbax logs for exceptions it also raises: ours has them as its cause."""
    return not (record.exc_info and "orbax" in record.pathname)


@functools.cache
def _leave_late_writes_unsaid() -> None:
    """Keep back what TensorStore prints of writes that end after a save of theirs has failed.

    The failed save's event loop is closed by then, which each of them reports with a traceback.
    """
    otherwise = sys.unraisablehook

    def hook(found: Any) -> None:
        late = isinstance(found.exc_value, RuntimeError) and str(found.exc_value) == LATE
        if not (late and found.object is None):
            otherwise(found)

    sys.unraisablehook = hook


def _orbax() -> ocp.AsyncCheckpointer:
    _leave_late_writes_unsaid()
    logging.getLogger("absl").addFilter(_raised_anyway)
    arrays = {item: ocp.PyTreeCheckpointHandler() for item in ("params", "rest")}
    return ocp.AsyncCheckpointer(
        ocp.CompositeCheckpointHandler(**arrays, meta=ocp.JsonCheckpointHandler())
    )


def _close(orbax: ocp.AsyncCheckpointer) -> None:
    """Lets go of Orbax's threads; what its last save failed of was raised as an error of ours."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        orbax.close()


def _named(tree: PyTree) -> dict[str, Any]:
    """Leaves by name, the parts of their path joined with '/'."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {
        "/".join(
            str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path
        ): leaf
        for path, leaf in leaves
    }
    assert len(named) == len(leaves), "two leaves share a name"
    return named


def _split(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Parameters apart from the rest, so that they can be read without knowing the rest."""
    items = {
        "params": _named(state["params"]),
        "rest": _named({k: v for k, v in state.items() if k != "params"}),
    }
    return {item: named for item, named in items.items() if named}


def _describe(named: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {n: {"shape": list(x.shape), "dtype": jnp.dtype(x.dtype).name} for n, x in named.items()}


def _compare(
    wanted: dict[str, dict[str, Any]], saved: dict[str, dict[str, Any]], folder: Path
) -> None:
    """Names the first array that the checkpoint holds otherwise than the run wants it."""
    for item in ("params", "rest"):
        ours, theirs = _describe(wanted.get(item, {})), saved.get(item, {})
        for name in [*ours, *theirs]:
            a, b = ours.get(name), theirs.get(name)
            if a != b:
                here, there = (f"{d['dtype']}{d['shape']}" if d else "absent" for d in (a, b))
                raise CheckpointError(
                    f"{folder} does not fit: {name} is {there} in the checkpoint and {here} in this run",
                    "model, tokenizer and optimizer must be those it was trained with",
                )


def _load(
    orbax: ocp.AsyncCheckpointer, folder: Path, wanted: dict[str, dict[str, Any]]
) -> tuple[dict, dict]:
    """Arrays of the named items as `wanted` places them, numpy where it names no sharding; and meta."""

    def place(leaf: Any) -> ocp.RestoreArgs:
        sharding = getattr(leaf, "sharding", None)
        if sharding is None:
            return ocp.RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype)
        return ocp.ArrayRestoreArgs(sharding=sharding, global_shape=leaf.shape, dtype=leaf.dtype)

    restores: dict[str, Any] = {
        item: ocp.args.PyTreeRestore(
            item={n: jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in named.items()},
            restore_args={n: place(x) for n, x in named.items()},
        )
        for item, named in wanted.items()
    }
    try:
        restored = orbax.restore(
            folder, ocp.args.Composite(**restores, meta=ocp.args.JsonRestore())
        )
    except (
        OSError,
        ValueError,
        KeyError,
    ) as error:  # verified, and yet unreadable: another version wrote it
        raise CheckpointError(
            f"{folder} cannot be read: {error}", "was it written by another version?"
        ) from error
    return {item: restored[item] for item in wanted}, restored["meta"]
