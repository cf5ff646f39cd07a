"""One update as a pure function of (state, batch, step inputs), and the program that runs it.

Only this module knows how the runs that train at once are stacked, and how they are computed: under
jit or pmap, and along the run axis by lax.map or vmap.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import objectives, sharding
from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError
from bert_jax.masking import drawn_quotas, quotas, rates
from bert_jax.models.backends import settle_for_vmap
from bert_jax.objectives import network
from bert_jax.training import optim

# Keys: params, optimizer, step, skipped, skipped_in_row.
State = dict[str, Any]
Step = Callable[[State, Batch, StepInputs], tuple[State, Metrics]]


# --- one update, as pure functions ----------------------------------------------------------------


def init_state(config: knobs.Config, vocab_size: int, seed: jax.Array) -> State:
    """Initialise the state of one run; a function of the seed and the config alone."""
    params = network.init(config, vocab_size, seed)
    zero = jnp.zeros((), jnp.int32)
    optimizer = optim.transformation(config.optim, params, 0.0).init(params)
    return {
        "params": params,
        "optimizer": optimizer,
        "step": zero,
        "skipped": zero,
        "skipped_in_row": zero,
    }


def inputs_at(config: knobs.Config, step: int) -> StepInputs:
    """Compute the inputs of the update with 0-based index `step`, on the host in float64."""
    law, length = config.masking, config.sequence_length
    selected = predicted = drawn = None
    if law.draw == "fixed":
        rate = rates.rate_at(law, step, config.steps)
        selected = quotas.selection_quotas(law, rate, length)
        predicted = quotas.prediction_quotas(law, rate, length)
    else:
        diffusion = config.objectives.get("diffusion")
        drawn = drawn_quotas.make_drawn(law, length, diffusion.gamma if diffusion else 0.0)
    weights, share = {name: o.weight or 0.0 for name, o in config.objectives.items()}, None
    if "hybrid" in weights:
        whole, share = weights["hybrid"], config.objectives["hybrid"].share
        weights = {"mlm": whole * (1 - share), "causal_lm": whole * share}
    return StepInputs(
        quotas=selected,
        predict_quotas=predicted,
        replace=np.asarray(config.masking.replace, np.float32),
        weights={name: np.float32(weight) for name, weight in weights.items()},
        learning_rate=np.float32(optim.schedule(config.optim, config.steps)(step)),
        weight_decay=np.float32(config.optim.weight_decay),
        seed=np.uint32(config.seed),
        drawn=drawn,
        share=None if share is None else np.float32(share),
    )


def make_step(
    config: knobs.Config, special: Special, vocab_size: int, axis: str | None = None, slots: int = 0
) -> Step:
    """Build the update of one run.

    Under pmap, sums run over the mapped `axis`. `slots` are prediction slots of a row, where runs
    with higher masking rates take the same update.
    """
    model = network.build(config, vocab_size, train=True)
    table = objectives.configure(config.objectives)
    needed = quotas.count_slots(config.masking, config.sequence_length, config.packing)
    mask = functools.partial(
        objectives.choose_corruption(table),
        settings=config.masking,
        special=special,
        vocab_size=vocab_size,
        slots=max(slots, needed),
    )

    def over_devices(tree: Any) -> Any:
        return jax.lax.psum(tree, axis) if axis else tree

    def step(state: State, batch: Batch, inputs: StepInputs) -> tuple[State, Metrics]:
        masked, ledger = mask(batch, inputs) if config.masked else (batch, {})
        # Denominators first: they do not depend on parameters, so that every microbatch and every
        # device divides by the same.
        counts = over_devices(objectives.count_targets(table, masked))
        key = jax.random.key(inputs.seed, impl=devices.prng(config.parallel))
        key = jax.random.fold_in(key, state["step"])
        key = jax.random.fold_in(key, jax.lax.axis_index(axis)) if axis else key
        frozen = optim.frozen(state["params"], config.optim.freeze)

        def loss_of(params: Any, micro: Batch, key: jax.Array) -> tuple[jax.Array, Metrics]:
            params = jax.tree.map(
                lambda p, fixed: jax.lax.stop_gradient(p) if fixed else p, params, frozen
            )
            outputs = network.outputs(model, params, micro, dropout=key)
            metrics: Metrics = {}
            loss = jnp.zeros(())
            for name, objective in table.items():
                metrics |= objective.loss(outputs[name], micro)
            for name, count in counts.items():
                total, count = metrics[f"{name}_loss"][0], jnp.maximum(count, 1.0)
                loss += inputs.weights[name] * total / count
            return loss, {**metrics, "loss": (loss, jnp.zeros(()))}

        grads, metrics = over_devices(
            _accumulate(loss_of, state["params"], masked, key, config.optim.accumulation)
        )
        state, norm = _update(config.optim, state, grads, inputs)
        one = jnp.ones(())
        update_metrics: Metrics = {
            "loss": (metrics["loss"][0], one),
            "grad_norm": (norm, one),
            "skipped_in_row": (state["skipped_in_row"].astype(jnp.float32), one),
        }
        return state, metrics | over_devices(ledger) | update_metrics

    return step


def _accumulate(
    loss_of: Callable, params: Any, batch: Batch, key: jax.Array, parts: int
) -> tuple[Any, Metrics]:
    """Sum gradients and metrics over `parts` microbatches, computed one after the other."""
    gradient = jax.grad(loss_of, has_aux=True)
    if parts == 1:
        return gradient(params, batch, jax.random.fold_in(key, 0))
    # Microbatch i takes rows i, i + parts, ...: the rows of each device are spread over all of
    # them, and none moves to another device.
    micro = jax.tree.map(
        lambda x: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1), batch
    )
    first = jax.tree.map(lambda x: x[0], micro)
    shapes = jax.eval_shape(gradient, params, first, key)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(total: Any, item: tuple[jax.Array, Batch]) -> tuple[Any, None]:
        index, part = item
        summand = gradient(params, part, jax.random.fold_in(key, index))
        return jax.tree.map(jnp.add, total, summand), None

    return jax.lax.scan(add, zeros, (jnp.arange(parts), micro))[0]


def _update(
    settings: knobs.Optim, state: State, grads: Any, inputs: StepInputs
) -> tuple[State, jax.Array]:
    """Clip the gradient and step; return the new state and the norm of the gradient.

    A gradient that is not finite leaves parameters and moments as they were, and is counted.
    """
    params, moments = state["params"], state["optimizer"]
    clipped, norm = optim.clip(grads, settings.clip_norm)
    transform = optim.transformation(settings, params, inputs.weight_decay)
    direction, new_moments = transform.update(clipped, moments, params)
    stepped = jax.tree.map(lambda p, d: p - inputs.learning_rate * d, params, direction)
    accepted = jnp.isfinite(norm)

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(accepted, n, o), new, old)

    rejected = 1 - accepted.astype(jnp.int32)
    return {
        "params": keep(stepped, params),
        "optimizer": keep(new_moments, moments),
        "step": state["step"] + 1,
        "skipped": state["skipped"] + rejected,
        "skipped_in_row": (state["skipped_in_row"] + 1) * rejected,
    }, norm


# --- the update over devices and runs -------------------------------------------------------------


class Program:
    """The update of one run, or of several runs at once, compiled over the devices of a mesh.

    Runs share the program and the batch; they differ in their states and step inputs. With more
    than one run, every leaf of the state, the step inputs and the metrics has a leading run axis,
    which no caller sees: `place` adds it, `run_state`, `run_params` and `metrics` take it off.
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

        The config is that of the run, or of the first one, and `slots` are prediction slots of a
        row, where a run needs more than the first one.
        """
        self.config, self.mesh, self.vocab_size = config, mesh, vocab_size
        self._run_count = run_count
        # Tables of drawn rates are large, and the same at every update.
        self._laws = sharding.Resident(
            sharding.inputs_layout(mesh, config.parallel, run_count > 1), run_count > 1
        )

        def init(seed: jax.Array) -> State:
            return init_state(config, vocab_size, seed)

        # Of one run; `_layout` is that of the whole state.
        self.shapes = jax.eval_shape(init, np.uint32(0))
        self.layout = sharding.state_layout(self.shapes, mesh, config.parallel)
        self._layout = sharding.stacked(self.layout, mesh) if run_count > 1 else self.layout
        self._init = jax.jit(init, out_shardings=self.layout)
        self._update = compile_step(
            config, special, vocab_size, mesh, self._layout, run_axis=run_count > 1, slots=slots
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
        """Keep the state of one run for `place`: on the host, where those of others follow."""
        return jax.device_get(state) if self._run_count > 1 else state

    def place(self, states: Sequence[State]) -> State:
        """Place the states of all runs on the devices, as the update takes them."""
        return sharding.stack(states, self._layout) if self._run_count > 1 else states[0]

    def trace(self, batch: Any) -> Any:
        """Trace the update of one run for a batch of shapes, to compile it ahead of time."""
        update: Any = self._update
        with self.context():
            return update.trace(self.shapes, batch, inputs_at(self.config, 0))

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
        laws = self._laws.place([one.drawn for one in inputs])
        small = [one._replace(drawn=None) for one in inputs]
        own: Any = small[0]
        if self._run_count > 1:
            own = jax.tree.map(lambda *leaves: np.stack(leaves), *small)
        with self.context():
            return self._update(state, on_device, own._replace(drawn=laws))

    def metrics(self, on_device: Metrics) -> list[dict[str, tuple[float, float]]]:
        """Fetch the metrics of an update, a dict of (sum, count) for each run."""
        fetched = sharding.to_host(on_device)
        if self._run_count == 1:
            return [{name: (float(total), float(n)) for name, (total, n) in fetched.items()}]
        return [
            {name: (float(total[i]), float(n[i])) for name, (total, n) in fetched.items()}
            for i in range(self._run_count)
        ]

    def run_state(self, state: State, index: int) -> State:
        """Take the state of one run out of the state of all."""
        return sharding.pick(state, index, self.layout) if self._run_count > 1 else state

    def run_params(self, state: State, index: int) -> Any:
        """Take the parameters of one run out of the state of all."""
        params, layout = state["params"], self.layout["params"]
        return sharding.pick(params, index, layout) if self._run_count > 1 else params


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


def compile_step(
    config: knobs.Config,
    special: Special,
    vocab_size: int,
    mesh: Mesh,
    layout: Any,
    *,
    run_axis: bool = False,
    slots: int = 0,
) -> Step:
    """Build the update over all devices, jitted over the mesh or pmapped: the numbers are the same.

    With `run_axis`, the leaves of state, step inputs and metrics have a leading axis of runs.
    """
    if config.parallel.step == "pmap":
        return sharding.Mapped(make_step(config, special, vocab_size, axis="data"), mesh)
    mapping = _mapping(config.parallel)
    if run_axis and mapping == "vmap":
        config = dataclasses.replace(config, model=settle_for_vmap(config.model))
    update = make_step(config, special, vocab_size, slots=slots)
    batch_layout = jax.NamedSharding(mesh, sharding.BATCH)
    inputs_layout = sharding.inputs_layout(mesh, config.parallel, run_axis)
    return jax.jit(
        _over_runs(update, mesh, mapping) if run_axis else update,
        in_shardings=(layout, batch_layout, inputs_layout),
        out_shardings=(layout, sharding.replicated(mesh)),
        donate_argnums=0,
        compiler_options=devices.compiler_options(),
    )


def _mapping(settings: knobs.Parallel) -> str:
    """Choose how the runs on a device are computed: in turn ("map") or all at once ("vmap").

    On a CPU the first is faster; on an accelerator only the second lets a small model fill the
    device.
    """
    if devices.prng(settings) != "threefry2x32":
        return "map"  # under vmap other generators draw other bits than for a run alone
    return devices.here().arms if settings.arms == "auto" else settings.arms


def _over_runs(update: Step, mesh: Mesh, mapping: str) -> Step:
    """Map the update of one run over a run axis of states and step inputs, all on one batch."""

    def updates(states: State, batch: Batch, inputs: StepInputs) -> tuple[State, Metrics]:
        if mapping == "vmap":
            return jax.vmap(update, in_axes=(0, None, 0))(states, batch, inputs)
        return jax.lax.map(lambda run: update(run[0], batch, run[1]), (states, inputs))

    if mesh.shape["arm"] == 1:
        return updates
    runs, whole = jax.sharding.PartitionSpec("arm"), jax.sharding.PartitionSpec()
    specs = {"in_specs": (runs, whole, runs), "out_specs": runs}
    return jax.shard_map(updates, mesh=mesh, axis_names={"arm"}, check_vma=False, **specs)
