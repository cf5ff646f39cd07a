"""Save checkpoints: Orbax writes them in the background and deletes those that are not kept.

Orbax writes a step into a temporary folder and renames it last. The manifest is written just before
that, so every folder with the name of a step is whole, whenever the process is killed.
"""

import contextlib
import json
import logging
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax.checkpoints import manifest, reading
from bert_jax.errors import CheckpointError, DivergedError, PeerLost
from bert_jax.system import disk, trees

logger = logging.getLogger(__name__)

# What the other arrays of a failed save raise, on a full disk for example: see `reading.py`.
logging.getLogger("asyncio").addFilter(lambda record: "never retrieved" not in record.getMessage())

PyTree = Any
DRAFT = ".orbax-checkpoint-tmp"  # which Orbax adds to the name of a step that it writes
SPARE = 1 << 20  # bytes Orbax writes beside the arrays, generously


class Checkpoints:
    """The checkpoints of one run.

    These steps are kept: the `keep` latest steps, the step with the best metric if `keep_best`, and
    the steps listed in `at`. Only the process that holds the lock of the run may change them:
    saving and `delete_after` delete what no attempt continues.
    """

    def __init__(self, folder: Path, keep: int, keep_best: bool, at: Sequence[int] = ()):
        self.folder = Path(folder).absolute()
        self._keep = keep
        self._keep_best = keep_best
        self._at = at
        self._manager: Manager | None = None  # opened by the first save
        self._step = -1  # the step that was saved last
        self._metric: float | None = None  # of that step, if it is being saved
        self._needed = 0  # bytes of the last save

    def save(
        self, step: int, state: dict[str, PyTree], meta: dict[str, Any], metric: float | None = None
    ) -> None:
        """Begin to save a step in the background.

        The call blocks while an earlier save runs and while arrays are copied. Call `wait` or
        `close` before the process ends, or the last save is lost.
        """
        self.wait()
        if jax.default_backend() == "cpu":
            state = _copy(state)  # Orbax keeps views, and the caller's next update is in place
        check_finite(state["params"])
        meta = json.loads(json.dumps({"step": step, **meta}))  # a copy: the caller changes it
        items: dict[str, Any] = {"meta": ocp.args.JsonSave(meta)}
        for name, tree in reading.split_state(state).items():
            items[name] = ocp.args.PyTreeSave(tree)
        self._step = step
        self._metric = metric if metric is not None and math.isfinite(metric) else None
        self._needed = bytes_needed(state)
        with self._explain_failure():
            if self._manager is None:
                self._manager = self._open_manager()
            self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(
        self, like: dict[str, PyTree], step: int | None = None
    ) -> tuple[dict[str, PyTree], dict[str, Any], int] | None:
        """Restore the newest sound step, or `step`; see `reading.read_state`."""
        self.wait()
        return reading.read_state(self.folder, like, step)

    def delete_after(self, step: int) -> None:
        """Delete all later steps: an attempt that the run does not continue saved them."""
        self._remove(str(later) for later in manifest.list_steps(self.folder) if later > step)

    def write_evaluations(self, step: int, metric: float | None, changed: dict[str, Any]) -> None:
        """Record evaluations that came after the save: see `manifest.write_evaluations`."""
        self.wait()
        if jax.process_index() == 0:
            manifest.write_evaluations(self.folder / str(step), metric, changed)

    def forget_metrics(self) -> None:
        """Forget the metrics by which the saved steps are ranked."""
        if jax.process_index() == 0:
            for step in manifest.list_steps(self.folder):
                with contextlib.suppress(CheckpointError):  # a damaged step has no rank
                    manifest.forget_metric(self.folder / str(step))

    def wait(self) -> None:
        """Block until the last save is on the disk; raise its error if it failed."""
        if self._manager is not None:
            with self._explain_failure():
                self._manager.wait_until_finished()

    def close(self) -> None:
        """Wait for the last save, then end Orbax's threads."""
        try:
            self.wait()
        finally:
            if self._manager is not None:
                with contextlib.suppress(Exception):  # `wait` has raised it
                    self._manager.close()

    def should_preserve(self, checkpoints: Sequence[Any], *, context: object) -> list[bool]:
        """Return a list of bools: which checkpoints to keep; Orbax asks after each save."""
        metrics, damaged = manifest.read_metrics(self.folder)
        metrics[self._step] = self._metric
        best = manifest.sort_best_first(metrics)[: int(self._keep_best)]
        kept = {*sorted(metrics)[-self._keep :], *best, *self._at}
        for step in {*damaged} - kept:
            folder = self.folder / str(step)
            path = folder / manifest.MANIFEST
            if not manifest.is_lost(folder):  # it may be the best, once it can be read again
                logger.warning(f"{path} cannot be read; step {step} is kept")
                kept.add(step)
                continue
            logger.warning(f"checkpoint corrupt: {path}; step {step} is deleted")
        return [checkpoint.step in kept for checkpoint in checkpoints]

    def _open_manager(self) -> "Manager":
        """Open Orbax's manager, after deleting what a killed process was saving."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_drafts()
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("nothing is left to delete")
        together = ocp.options.MultiprocessingOptions(
            barrier_sync_key_prefix=self.folder.parent.name  # or two runs meet at one barrier
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._write_manifest),
            multiprocessing_options=together,
            lightweight_initialize=True,
            save_root_metadata=False,
        )
        return Manager(self.folder, options=options)

    def _write_manifest(self) -> None:
        """Write the manifest of a save that is complete, before Orbax renames its folder."""
        (draft,) = self.folder.glob(f"{self._step}{DRAFT}*")
        manifest.write_manifest(draft, self._step, self._metric)

    def _remove_drafts(self) -> None:
        self._remove(path.name for path in self.folder.glob(f"*{DRAFT}*"))

    def _remove(self, names: Iterable[str]) -> None:
        if jax.process_index() == 0:
            for name in names:
                shutil.rmtree(self.folder / name, ignore_errors=True)  # only space is lost

    @contextlib.contextmanager
    def _explain_failure(self) -> Iterator[None]:
        """Turn an error of a save into an error with a hint; remove the files of this save."""
        try:
            yield
        except Exception as error:  # Orbax raises what its storage, threads or barriers raise
            self._remove_drafts()
            if disk.is_full(error):
                raise disk.make_full_error(self.folder, self._needed, "a checkpoint") from error
            if jax.process_count() > 1 and PeerLost.explains(error):  # hosts wait for each other
                raise PeerLost() from error
            raise CheckpointError(
                f"cannot write the checkpoint of step {self._step} in {self.folder}: "
                f"{type(error).__name__}: {error}",
                "earlier steps are intact",
            ) from error


class Manager(ocp.CheckpointManager):
    """Orbax's manager without its check for preemption, which the training loop makes itself.

    Orbax would ask jax's preemption service from a thread, about a step that the loop has already
    passed. But this service, which stops all hosts at the same step, must be asked about rising
    steps.
    """

    def reached_preemption(self, step: int) -> bool:
        """Return False: the training loop checks for preemption."""
        return False


def bytes_needed(state: PyTree) -> int:
    """Return an upper bound of a checkpoint's size on disk, in bytes.

    `state` may have only the shapes of its arrays.
    """
    leaves = jax.tree.leaves(state)
    return SPARE + sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in leaves)


def check_finite(params: PyTree) -> None:
    """Refuse parameters that are not finite: they must never become the latest checkpoint."""
    finite = trees.flatten_tree(jax.device_get(_find_finite(params)))
    bad = [name for name in finite if not finite[name]]
    if bad:
        raise DivergedError(
            f"not saved: {len(bad)} of {len(finite)} parameters are not finite, "
            f"the first is {bad[0]}",
            "go on from the last checkpoint with a lower optim.learning_rate, "
            "or optim.clip_norm set",
        )


@jax.jit
def _copy(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.copy, tree)


@jax.jit
def _find_finite(tree: PyTree) -> PyTree:
    """Return a tree of bools: whether all numbers of each array are finite."""
    return jax.tree.map(lambda array: jnp.isfinite(array).all(), tree)
