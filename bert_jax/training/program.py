"""The program that trains: the update of `training/step.py`, compiled for devices and runs.

Only this module knows how the runs that train at once are stacked, and whether lax.map or vmap
computes them along the run axis. A run alone may also be compiled by pmap (`pmap.py`).
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError
from bert_jax.models.backends import adapt_to_vmap
from bert_jax.training.pmap import PMAP_AXIS, PmapUpdate, replicate_locally
from bert_jax.training.start import Start
from bert_jax.training.step import State, Update, compute_inputs, make_update

RUNS = PartitionSpec("run")


class Program:
    """The update of one run, or of several runs at once, compiled over the devices of a mesh.

    Runs share the program and the batch. Runs differ in their states and step inputs. With more
    than one run, every leaf of the state, the step inputs and the metrics has a leading run axis.
    """

    def __init__(
        self,
        config: knobs.Config,
        special: Special,
        vocab_size: int,
        mesh: Mesh,
        run_count: int = 1,
        slots: int = 0,
    ):
        """Lay out the state on devices; the update is not compiled yet.

        `config` is the config of the first run. `slots` is the least number of prediction slots of
        a row.
        """
        self.config = config
        self.mesh = mesh
        self._run_count = run_count
        self._alone = run_count == 1
        self._tables: Any = None  # of drawn rates, on the devices

        self.start = Start(config, vocab_size, mesh)
        # Shapes and shardings of the state of one run, and shardings of the states of all runs.
        self.shapes = self.start.shapes
        self.run_layout = self.start.layout
        self._stacked_layout = self.run_layout
        if not self._alone:  # the first axis of each stacked array is the runs
            self._stacked_layout = jax.tree.map(
                lambda where: NamedSharding(mesh, PartitionSpec(*RUNS, *where.spec)),
                self.run_layout,
            )
        if config.parallel.step == "pmap":
            self._inputs_layout = replicate_locally()
            update = make_update(config, special, vocab_size, PMAP_AXIS, slots)
            self._update: Any = PmapUpdate(update, mesh)
        else:
            self._inputs_layout = NamedSharding(mesh, PartitionSpec() if self._alone else RUNS)
            self._update = self._jit_update(special, vocab_size, slots)

    def _jit_update(self, special: Special, vocab_size: int, slots: int) -> Any:
        """Return the jitted update of the run, or of all runs."""
        config = self.config
        mapping = _choose_mapping(config.parallel)
        if mapping == "vmap" and not self._alone:
            config = dataclasses.replace(config, model=adapt_to_vmap(config.model))
        update = make_update(config, special, vocab_size, slots=slots)
        rows = NamedSharding(self.mesh, sharding.BATCH)
        return jax.jit(
            update if self._alone else _map_over_runs(update, self.mesh, mapping),
            in_shardings=(self._stacked_layout, rows, self._inputs_layout),
            out_shardings=(self._stacked_layout, sharding.replicated(self.mesh)),
            donate_argnums=0,
            compiler_options=devices.list_options(),
        )

    def describe_state(self) -> Any:
        """Return shapes, types and shardings of one run's state, for reading a checkpoint."""
        return jax.tree.map(
            lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
            self.shapes,
            self.run_layout,
        )

    def place(self, states: Sequence[State]) -> State:
        """Join the states of all runs, and place them on the devices as the update needs them."""
        if self._alone:
            return states[0]
        return jax.tree.map(
            lambda where, *leaves: jax.device_put(np.stack(leaves), where),
            self._stacked_layout,
            *states,
        )

    def trace(self, batch: Any) -> Any:
        """Trace the update of one run for a batch of shapes, so that it can be compiled."""
        with self.context():
            return self._update.trace(self.shapes, batch, compute_inputs(self.config, 0))

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the model splits activations by the mesh: see `in_mesh`."""
        return in_mesh(self.config.parallel, self.mesh)

    def update(
        self, state: State, batch: Batch, step_inputs: Sequence[StepInputs]
    ) -> tuple[State, Metrics]:
        """Dispatch one update of all runs on one batch; return before the devices finish it."""
        on_device = batch
        if self.config.parallel.step == "jit":
            on_device = sharding.place(batch, self.config.batch_size, self.mesh)
        if self._tables is None:
            # They are large, and the same at every update.
            drawn = self._join([one.drawn for one in step_inputs])
            self._tables = jax.device_put(drawn, self._inputs_layout)
        joined = self._join([one._replace(drawn=None) for one in step_inputs])
        with self.context():
            return self._update(state, on_device, joined._replace(drawn=self._tables))

    def _join(self, trees: Sequence[Any]) -> Any:
        """Stack the trees of all runs into one tree with a run axis, if there are several runs."""
        if self._alone:
            return trees[0]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    def fetch_metrics(self, on_device: Metrics) -> list[dict[str, tuple[float, float]]]:
        """Fetch the metrics of an update from the devices: {metric: (sum, count)} of each run."""
        runs: list[dict[str, tuple[float, float]]] = [{} for _ in range(self._run_count)]
        for name, (sums, counts) in sharding.to_host(on_device).items():
            pairs = zip(np.atleast_1d(sums), np.atleast_1d(counts), strict=True)
            for run, (total, count) in zip(runs, pairs, strict=True):
                run[name] = float(total), float(count)
        return runs

    def pick(self, tree: Any, index: int, layout: Any) -> Any:
        """Return the state of one run, or a subtree of that state, with shardings `layout`."""
        if self._alone:
            return tree
        return jax.tree.map(lambda leaf, where: jax.device_put(leaf[index], where), tree, layout)


def mesh_for(config: knobs.Config, run_count: int = 1) -> Mesh:
    """Build the mesh that a program trains on; refuse rows or runs that do not fit the mesh."""
    if run_count > 1 and (config.parallel.step == "pmap" or jax.process_count() > 1):
        raise ConfigError(
            "runs train together under jit and in one process", "train them one by one"
        )
    mesh = sharding.make_mesh(config.parallel, run_count)
    rows = config.batch_size // config.optim.accumulation
    sharding.check_rows(rows, mesh, "batch_size / accumulation")
    return mesh


def in_mesh(settings: knobs.Parallel, mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Return a context with the mesh, by which the model splits activations.

    Under pmap the context does nothing.
    """
    return jax.set_mesh(mesh) if settings.step == "jit" else contextlib.nullcontext()


# --- several runs ---------------------------------------------------------------------------------


def _choose_mapping(settings: knobs.Parallel) -> str:
    """Choose how the runs on a device are computed: in sequence ("map") or at once ("vmap").

    On a CPU "map" is faster. On an accelerator only "vmap" lets a small model fill the device.
    """
    if devices.choose_prng(settings) != "threefry2x32":
        return "map"  # under vmap other generators draw other bits than for a run alone
    return devices.find_row().arms if settings.arms == "auto" else settings.arms


def _map_over_runs(update: Update, mesh: Mesh, mapping: str) -> Update:
    """Map the update of one run over the run axis of states and step inputs; all share a batch."""

    def updates(states: State, batch: Batch, step_inputs: StepInputs) -> tuple[State, Metrics]:
        if mapping == "vmap":
            return jax.vmap(update, in_axes=(0, None, 0))(states, batch, step_inputs)
        return jax.lax.map(lambda run: update(run[0], batch, run[1]), (states, step_inputs))

    if mesh.shape["run"] == 1:
        return updates
    specs = {"in_specs": (RUNS, PartitionSpec(), RUNS), "out_specs": RUNS}
    return jax.shard_map(updates, mesh=mesh, axis_names={"run"}, check_vma=False, **specs)
