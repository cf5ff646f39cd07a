"""Checkpoints: Orbax saves asynchronously, and a sha256 manifest makes a step trusted.

    1000/params/ rest/ meta/   written by Orbax: arrays, arrays, plain JSON
    1000/manifest.json         sha256 and size of each of those files; the metric; the arrays'
                               names, shapes and dtypes

Nothing else is restored: Orbax alone does not notice a flipped bit and takes an empty folder for a
step. A step is deleted only once a newer one has its manifest.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax.checkpoints import manifest, storage
from bert_jax.errors import CheckpointError, DivergedError, PeerLost, UserError
from bert_jax.system import disk, fault_points, trees

logger = logging.getLogger(__name__)

PyTree = Any
WHAT = "a checkpoint"
SPARE = 1 << 20  # bytes Orbax writes beside the arrays, generously
# Orbax numbers the saves of a process: of two that begin at once, one takes the other for its own.
STARTING = threading.Lock()
# Seconds for the caller to start its next update, before a save competes for Python's lock.
HEAD_START = 0.02


class Checkpoints:
    """The checkpoints of one run: the `keep` latest, the best by the lowest metric, and those `at`.

    Steps in `at` are kept for good.
    """

    def __init__(self, folder: Path, keep: int, keep_best: bool, at: Sequence[int] = ()):
        self.folder, self.keep, self.keep_best = Path(folder).absolute(), keep, keep_best
        self.at = frozenset(at)
        self._orbax = storage.checkpointer()
        self._thread: threading.Thread | None = None
        self._error: UserError | None = None
        self._current: int | None = None  # the step this run last saved or restored
        # The step that `peek` verified, which the restore that follows does not hash again.
        self._peeked: int | None = None
        self._corrupt: set[int] = set()

    def save(
        self, step: int, state: PyTree, meta: dict[str, Any], metric: float | None = None
    ) -> None:
        """Start to save; block only while an earlier save runs and while arrays are copied.

        Call `wait` or `close` before the process ends, or the last save is lost.
        """
        self.wait()
        if step == self._current:
            return  # it is on disk already, and replacing it would leave a moment without it
        # On one host's CPU a copy is cheap, and Orbax can do all its work in the thread.
        in_thread = jax.process_count() == 1 and jax.default_backend() == "cpu"
        if in_thread:
            state = _copied(state)  # since the caller's next update may donate its arrays
        check_finite(state["params"])
        needed = bytes_needed(state)
        with disk.reporting_full_disk(self.folder, needed, WHAT):
            self.folder.mkdir(parents=True, exist_ok=True)
        disk.check_space(self.folder, needed, WHAT)
        fault_points.point("save-start", step)
        meta = json.loads(json.dumps({"step": step, **meta}))  # a copy, since the caller changes it
        arrays = storage.split(state)
        metric = metric if metric is not None and math.isfinite(metric) else None
        described = {item: storage.describe(a) for item, a in arrays.items()}
        entry = {"step": step, "metric": metric, "arrays": described}
        saves: dict[str, Any] = {item: ocp.args.PyTreeSave(a) for item, a in arrays.items()}
        target = ocp.args.Composite(**saves, meta=ocp.args.JsonSave(meta))
        # `force` replaces only steps of an abandoned attempt, newer than the step restored.
        begin = functools.partial(self._orbax.save, self.folder / str(step), target, force=True)
        if not in_thread:  # Orbax copies to the host, and hosts agree on names, before it returns
            try:
                begin()
            except storage.WRITE_ERRORS as error:
                raise self._failed(step, needed, error) from error
        self._current, self._peeked = step, None
        finish = functools.partial(self._finish, begin if in_thread else None, step, entry, needed)
        self._thread = threading.Thread(target=finish, name="checkpoint-manifest")
        self._thread.start()

    def restore(
        self, like: PyTree, step: int | None = None
    ) -> tuple[PyTree, dict[str, Any], int] | None:
        """Restore the last verified step, or `step`; return state, meta and step, or None if none.

        The arrays are placed as in `like`.
        """
        verified = self._find(step)
        if verified is None:
            return None
        source, targets = self.folder / str(verified), storage.split(like)
        storage.compare(targets, manifest.load(source)["arrays"], source)
        arrays, meta = storage.load(self._orbax, source, targets)
        self._current = verified
        flat = {f"params/{n}": x for n, x in arrays["params"].items()} | arrays.get("rest", {})
        leaves = [flat[name] for name in storage.named_leaves(like)]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), meta, verified

    def peek(self, step: int | None = None) -> tuple[dict[str, Any], int] | None:
        """Return meta and step of the checkpoint `restore` would take, before anything is built."""
        self._peeked = found = self._find(step)
        return (
            None
            if found is None
            else (storage.load(self._orbax, self.folder / str(found), {})[1], found)
        )

    def steps(self) -> list[int]:
        """Return the steps that have a manifest, oldest first."""
        return manifest.finished(self.folder)

    def best(self) -> int | None:
        """Return the step of the lowest metric, or the latest where none has one."""
        return manifest.best(self.folder, [s for s in self.steps() if s not in self._corrupt])

    def wait(self) -> None:
        """Block until the last save is verified; raise its error if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            self._current = None
            raise error

    def close(self) -> None:
        """Wait for the last save, then close Orbax's threads."""
        try:
            self.wait()
        finally:
            storage.close(self._orbax)

    def _find(self, step: int | None) -> int | None:
        """Find a verified step on process 0, so that hosts neither hash twice nor disagree."""
        self.wait()
        peeked, self._peeked = self._peeked, None
        if peeked is not None and step in (None, peeked):
            return peeked
        chosen: int | None = None  # -1 stands for None between hosts, and -2 for an error
        error = CheckpointError(
            f"process 0 found no sound checkpoint in {self.folder}", "its message says more"
        )
        if jax.process_index() == 0:
            try:
                chosen = manifest.choose(self.folder, step, self._corrupt)
            except CheckpointError as failure:
                error, chosen = failure, -2
        if jax.process_count() > 1:
            local = np.int32(-1 if chosen is None else chosen)
            code = int(multihost_utils.broadcast_one_to_all(local))
            chosen = None if code == -1 else code
        if chosen == -2:
            raise error
        return chosen

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
        except Exception as error:  # of a thread, so that `wait` has to raise it in the caller
            # Set first, in case `_failed` fails too.
            self._error = CheckpointError(f"cannot write the checkpoint of step {step}: {error}")
            self._error = self._failed(step, needed, error)
            self._error.__cause__ = error

    def tidy(self, step: int) -> None:
        """Delete the older steps that a kill after the save of `step` left behind."""
        if jax.process_index() == 0:
            self._prune(step)

    def _prune(self, step: int) -> None:
        """Delete steps older than `step`, now verified, except for the latest and the best."""
        saved = [s for s in self.steps() if s <= step and s not in self._corrupt - {step}]
        kept: set[int | None] = {*saved[-self.keep :], *self.at.intersection(saved)}
        if self.keep_best:
            kept.add(manifest.best(self.folder, saved))
        for old in manifest.step_folders(self.folder):
            if old < step and old not in kept:
                folder = self.folder / str(old)
                if old in saved and manifest.readable(folder) is None:
                    logger.warning(
                        f"checkpoint corrupt: {folder / manifest.NAME}; step {old} is deleted"
                    )
                (folder / manifest.NAME).unlink(missing_ok=True)  # first: half a step is not a step
                shutil.rmtree(folder)
        self._remove_unfinished()
        self._corrupt.discard(step)

    def _failed(self, step: int, needed: int, error: Exception) -> UserError:
        """Remove what a failed write left behind; return the error for the user."""
        if jax.process_count() == 1:
            # The old Orbax would raise this error again when it is next waited for. Python would
            # warn the user of the coroutines that it leaves unfinished.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            storage.close(self._orbax)
            self._orbax = storage.checkpointer()
        if jax.process_index() == 0:
            self._remove_unfinished()
            if step not in self.steps():
                shutil.rmtree(self.folder / str(step), ignore_errors=True)
        if disk.is_full(error):
            return disk.full(self.folder, needed, WHAT)
        # Processes wait for each other before and after they write.
        if jax.process_count() > 1 and PeerLost.explains(error):
            return PeerLost()
        problem = f"cannot write the checkpoint of step {step} in {self.folder}"
        return CheckpointError(
            f"{problem}: {type(error).__name__}: {error}", "earlier steps are intact"
        )

    def _remove_unfinished(self) -> None:
        for folder in self.folder.glob(manifest.UNFINISHED):
            shutil.rmtree(folder, ignore_errors=True)  # only space is lost; it is never read


def read(folder: Path, step: int | None = None) -> tuple[PyTree, dict[str, Any]]:
    """Read parameters and meta of the best, else latest, sound step of a run.

    Parameters are nested dicts of numpy arrays. `folder` is a run's folder, its checkpoints folder,
    or that of one step.
    """
    folder = Path(folder).absolute()
    if (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    elif step is None and folder.name.isdigit() and (folder / manifest.NAME).exists():
        folder, step = folder.parent, int(folder.name)
    sound = manifest.choose(folder, step, set(), best_first=True)
    if sound is None:
        raise CheckpointError(
            f"no checkpoint in {folder}", "give the folder of a run, or of one of its steps"
        )
    described = manifest.load(folder / str(sound))["arrays"]["params"]
    like = {
        n: jax.ShapeDtypeStruct(tuple(d["shape"]), jnp.dtype(d["dtype"]))
        for n, d in described.items()
    }
    orbax = storage.checkpointer()
    arrays, meta = storage.load(orbax, folder / str(sound), {"params": like})
    orbax.close()
    return trees.nested(arrays["params"]), meta


def bytes_needed(state: PyTree) -> int:
    """Return an upper bound of a checkpoint's bytes on disk; `state` has arrays or shapes."""
    leaves = jax.tree.leaves(state)
    return SPARE + sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in leaves)


def check_finite(params: PyTree) -> None:
    """Refuse parameters that are not finite: they must never become the latest checkpoint."""
    named = {
        n: x
        for n, x in storage.named_leaves(params).items()
        if jnp.issubdtype(x.dtype, jnp.inexact)
    }
    finite = _finite(list(named.values()))
    values = np.asarray(finite.addressable_data(0))
    if not values.all():
        bad = [name for name, good in zip(named, values, strict=True) if not good]
        raise DivergedError(
            f"not saved: {len(bad)} of {len(named)} parameters are not finite, "
            f"the first is {bad[0]}",
            "go on from the last checkpoint with a lower optim.learning_rate, "
            "or optim.clip_norm set",
        )


@jax.jit
def _copied(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, tree)


@jax.jit
def _finite(leaves: list[jax.Array]) -> jax.Array:
    return jnp.stack([jnp.isfinite(x).all() for x in leaves]) if leaves else jnp.ones((1,), bool)
