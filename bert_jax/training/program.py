"""The program that trains: the update of `training/step.py`, compiled for devices and runs.

Only this module knows how the runs that train at once are stacked and computed: under jit or pmap,
and along the run axis by lax.map or vmap.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError
from bert_jax.models.backends import settle_for_vmap
from bert_jax.training import pmap
from bert_jax.training.step import State, Update, compute_inputs, init_state, make_update

RUNS = PartitionSpec("run")


class Program:
    """The update of one run, or of several runs at once, compiled over the devices of a mesh.

    Runs share the program and the batch. They differ in their states and step inputs. With more
    than one run, every leaf of the state, the step inputs and the metrics has a leading run axis.
    No caller sees that axis: `place` adds it, `run_state`, `run_params` and `metrics` take it off.
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
        """Lay out the state; compile nothing yet.

        `config` is the first run's. `slots` is the least number of prediction slots of a row.
        """
        self.config, self.mesh, self.vocab_size = config, mesh, vocab_size
        self._run_count = run_count
        self._alone = run_count == 1
        self._tables: DeviceTables | None = None

        def init(seed: jax.Array) -> State:
            return init_state(config, vocab_size, seed)

        # Shapes and shardings of the state of one run; `_layout` has those of the whole state.
        self.shapes = jax.eval_shape(init, np.uint32(0))
        self.layout = lay_out_state(self.shapes, mesh, config.parallel)
        self._layout = self.layout if self._alone else add_run_axis(self.layout, mesh)
        self._inputs_layout = lay_out_inputs(mesh, config.parallel, not self._alone)
        self._init = jax.jit(init, out_shardings=self.layout)
        self._update = compile_update(
            config, special, vocab_size, mesh, self._layout, run_axis=not self._alone, slots=slots
        )

    def like(self) -> Any:
        """Return shapes, types and shardings of the state of one run, for a checkpoint to fill."""
        return jax.tree.map(
            lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
            self.shapes,
            self.layout,
        )

    def init(self, seed: int) -> State:
        """Initialise the state of one run."""
        return self._init(np.uint32(seed))

    def hold(self, state: State) -> State:
        """Keep the state of one run until `place`; on the host if several runs train together."""
        return state if self._alone else jax.device_get(state)

    def place(self, states: Sequence[State]) -> State:
        """Place the states of all runs on the devices, as the update takes them."""
        if self._alone:
            return states[0]
        return stack_states(states, self._layout)

    def trace(self, batch: Any) -> Any:
        """Trace the update of one run for a batch of shapes, to compile it ahead of time."""
        update: Any = self._update
        with self.context():
            return update.trace(self.shapes, batch, compute_inputs(self.config, 0))

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """Have the mesh in context: see `in_mesh`."""
        return in_mesh(self.config.parallel, self.mesh)

    def update(
        self, state: State, batch: Batch, inputs: Sequence[StepInputs]
    ) -> tuple[State, Metrics]:
        """Dispatch one update of all runs on one batch; return before the devices have made it."""
        on_device = batch
        if self.config.parallel.step == "jit":
            on_device = sharding.place(batch, self.config.batch_size, self.mesh)
        small = [one._replace(drawn=None) for one in inputs]
        tables = self._place_tables([one.drawn for one in inputs])
        numbers = self._join(small)._replace(drawn=tables)
        with self.context():
            return self._update(state, on_device, numbers)

    def _place_tables(self, drawn: list[Any]) -> Any:
        """Place tables of drawn rates, which are large and the same at every update, once."""
        known = self._tables
        if known is None or [*map(id, known.on_host)] != [*map(id, drawn)]:
            placed = jax.device_put(self._join(drawn), self._inputs_layout)
            self._tables = known = DeviceTables(drawn, placed)
        return known.on_device

    def _join(self, trees: Sequence[Any]) -> Any:
        """Stack what each run has into one tree with a run axis, if there are several runs."""
        if self._alone:
            return trees[0]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    def metrics(self, on_device: Metrics) -> list[dict[str, tuple[float, float]]]:
        """Fetch the metrics of an update, a dict of (sum, count) for each run."""
        fetched = sharding.to_host(on_device)
        if self._alone:
            return [{name: (float(total), float(n)) for name, (total, n) in fetched.items()}]
        return [
            {name: (float(total[i]), float(n[i])) for name, (total, n) in fetched.items()}
            for i in range(self._run_count)
        ]

    def run_state(self, state: State, index: int) -> State:
        """Take the state of one run out of the state of all."""
        return state if self._alone else pick_run(state, index, self.layout)

    def run_params(self, state: State, index: int) -> Any:
        """Take the parameters of one run out of the state of all."""
        params = state["params"]
        return params if self._alone else pick_run(params, index, self.layout["params"])


class DeviceTables(NamedTuple):
    """Tables of drawn rates: the objects of the host, a run each, and their copy on the devices."""

    on_host: list[Any]
    on_device: Any


# --- layouts --------------------------------------------------------------------------------------


def lay_out_state(state: Any, mesh: Mesh, settings: knobs.Parallel) -> Any:
    """Return the shardings of the train state: split as the mesh says; replicated under pmap."""
    if settings.step == "jit":
        return sharding.state_shardings(state, mesh)
    # Evaluation and checkpoints of several processes need arrays of all devices.
    several = jax.process_count() > 1
    where = sharding.replicated(mesh) if several else pmap.find_state_sharding()
    return jax.tree.map(lambda _: where, state)


def lay_out_inputs(mesh: Mesh, settings: knobs.Parallel, run_axis: bool) -> NamedSharding:
    """Return the sharding of step inputs: whole on every device, or split along their run axis."""
    if settings.step == "pmap":
        return pmap.replicate_locally()
    return NamedSharding(mesh, RUNS if run_axis else PartitionSpec())


def add_run_axis(layout: Any, mesh: Mesh) -> Any:
    """Return the shardings of the stacked states of several runs, whose first axis is the runs."""

    def add(where: NamedSharding) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*RUNS, *where.spec))

    return jax.tree.map(add, layout)


def stack_states(states: Sequence[State], layout: Any) -> State:
    """Stack the states of several runs into one and place it."""
    return jax.tree.map(
        lambda where, *leaves: jax.device_put(np.stack(leaves), where), layout, *states
    )


def pick_run(tree: Any, index: int, layout: Any) -> Any:
    """Return the tree of one run out of a stacked one, placed as it would be alone."""
    return jax.tree.map(lambda leaf, where: jax.device_put(leaf[index], where), tree, layout)


# --- compilation ----------------------------------------------------------------------------------


def in_mesh(settings: knobs.Parallel, mesh: Mesh) -> contextlib.AbstractContextManager[Any]:
    """Have a mesh in context, by which the model splits activations; none under pmap."""
    return jax.set_mesh(mesh) if settings.step == "jit" else contextlib.nullcontext()


def mesh_for(config: knobs.Config, run_count: int = 1) -> Mesh:
    """Build the mesh a program trains on; refuse rows or runs that do not fit it."""
    if run_count > 1 and (config.parallel.step == "pmap" or jax.process_count() > 1):
        raise ConfigError(
            "runs train together under jit and in one process", "train them one by one"
        )
    mesh = sharding.make_mesh(config.parallel, run_count)
    rows = config.batch_size // config.optim.accumulation
    sharding.check_rows(rows, mesh, "batch_size / accumulation")
    return mesh


def compile_update(
    config: knobs.Config,
    special: Special,
    vocab_size: int,
    mesh: Mesh,
    layout: Any,
    *,
    run_axis: bool = False,
    slots: int = 0,
) -> Update:
    """Build the update over all devices, jitted over the mesh or pmapped: the numbers are the same.

    With `run_axis`, the leaves of state, step inputs and metrics have a leading axis of runs.
    """
    if config.parallel.step == "pmap":
        return pmap.MappedUpdate(make_update(config, special, vocab_size, pmap.AXIS, slots), mesh)
    mapping = _choose_mapping(config.parallel)
    if run_axis and mapping == "vmap":
        config = dataclasses.replace(config, model=settle_for_vmap(config.model))
    update = make_update(config, special, vocab_size, slots=slots)
    batch_layout = NamedSharding(mesh, sharding.BATCH)
    inputs_layout = lay_out_inputs(mesh, config.parallel, run_axis)
    return jax.jit(
        _map_over_runs(update, mesh, mapping) if run_axis else update,
        in_shardings=(layout, batch_layout, inputs_layout),
        out_shardings=(layout, sharding.replicated(mesh)),
        donate_argnums=0,
        compiler_options=devices.compiler_options(),
    )


def _choose_mapping(settings: knobs.Parallel) -> str:
    """Choose how the runs on a device are computed: in turn ("map") or all at once ("vmap").

    On a CPU the first is faster; on an accelerator only the second lets a small model fill the
    device.
    """
    if devices.prng(settings) != "threefry2x32":
        return "map"  # under vmap other generators draw other bits than for a run alone
    return devices.here().arms if settings.arms == "auto" else settings.arms


def _map_over_runs(update: Update, mesh: Mesh, mapping: str) -> Update:
    """Map the update of one run over a run axis of states and step inputs, all on one batch."""

    def updates(states: State, batch: Batch, inputs: StepInputs) -> tuple[State, Metrics]:
        if mapping == "vmap":
            return jax.vmap(update, in_axes=(0, None, 0))(states, batch, inputs)
        return jax.lax.map(lambda run: update(run[0], batch, run[1]), (states, inputs))

    if mesh.shape["run"] == 1:
        return updates
    specs = {"in_specs": (RUNS, PartitionSpec(), RUNS), "out_specs": RUNS}
    return jax.shard_map(updates, mesh=mesh, axis_names={"run"}, check_vma=False, **specs)
