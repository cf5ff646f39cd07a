"""One update as a pure function of (state, batch, step inputs), and the program that runs it on devices.

Nothing else knows whether one run is trained or several, under jit or pmap, by lax.map or vmap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import objectives, sharding
from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import devices, knobs, quotas
from bert_jax.errors import ConfigError
from bert_jax.models import network
from bert_jax.models.backends import batched
from bert_jax.objectives import masking
from bert_jax.training import optim

State = dict[
    str, Any
]  # params, optimizer, step, skipped, skipped_in_row; watched, where spikes are skipped
Step = Callable[[State, Batch, StepInputs], tuple[State, Metrics]]


def init_state(config: knobs.Config, vocab_size: int, seed: jax.Array) -> State:
    """A fresh state; a function of the seed and the config alone."""
    params = network.init(config, vocab_size, seed)
    zero = jnp.zeros((), jnp.int32)
    optimizer = optim.transformation(config.optim, params, 0.0).init(params)
    state = {
        "params": params,
        "optimizer": optimizer,
        "step": zero,
        "skipped": zero,
        "skipped_in_row": zero,
    }
    return state | ({"watched": optim.usual(config.optim)} if config.optim.spike_window else {})


def inputs_at(config: knobs.Config, step: int) -> StepInputs:
    """Compute the numbers of update `step` on the host, in float64."""
    rate = quotas.rate_at(config.masking, step, config.steps)
    wanted = config.masking.prediction_rate
    return StepInputs(
        quotas=quotas.table(rate, config.sequence_length),
        predict_quotas=quotas.table(rate if wanted is None else wanted, config.sequence_length),
        replace=np.asarray(config.masking.replace, np.float32),
        weights={name: np.float32(o.weight) for name, o in config.objectives.items()},
        learning_rate=np.float32(optim.schedule(config.optim, config.steps)(step)),
        weight_decay=np.float32(config.optim.weight_decay),
        seed=np.uint32(config.seed),
        spike_sigmas=np.float32(config.optim.spike_sigmas) if config.optim.spike_window else None,
    )


def make_step(
    config: knobs.Config, special: Special, vocab_size: int, axis: str | None = None, slots: int = 0
) -> Step:
    """The update of a config; `axis` names the mapped axis that sums run over under pmap.

    With `slots` prediction slots a row there is room for arms of higher rates than the config's.
    """
    model = network.build(config, vocab_size, train=True)
    replacements = masking.random_ids(config.masking, special, vocab_size)
    slots = max(slots, quotas.slots(config.masking, config.sequence_length, config.packing))
    micro_steps = config.optim.accumulation
    table = objectives.of(config.objectives)

    def mask(batch: Batch, traced: StepInputs) -> tuple[Batch, Metrics]:
        if not config.masked:
            return batch, {}
        return masking.apply(
            batch,
            traced,
            settings=config.masking,
            special=special,
            replacements=replacements,
            slots=slots,
        )

    def everywhere(tree: Any) -> Any:
        return jax.lax.psum(tree, axis) if axis else tree

    def step(state: State, batch: Batch, traced: StepInputs) -> tuple[State, Metrics]:
        masked, ledger = mask(batch, traced)
        # Denominators first: they do not depend on parameters, so every microbatch and device divides by the same.
        counts = everywhere({name: one.count(masked) for name, one in table.items()})
        key = jax.random.key(traced.seed, impl=devices.prng(config.parallel))
        key = jax.random.fold_in(key, state["step"])
        key = jax.random.fold_in(key, jax.lax.axis_index(axis)) if axis else key

        still = optim.frozen(state["params"], config.optim.freeze)

        def loss_of(params: Any, micro: Batch, key: jax.Array) -> tuple[jax.Array, Metrics]:
            params = jax.tree.map(
                lambda p, fixed: jax.lax.stop_gradient(p) if fixed else p, params, still
            )
            outputs = network.outputs(model, params, micro, dropout=key)
            metrics: Metrics = {}
            loss = jnp.zeros(())
            for name, objective in table.items():
                found = objective.loss(outputs[name], micro)
                loss += (
                    traced.weights[name] * found[f"{name}_loss"][0] / jnp.maximum(counts[name], 1.0)
                )
                metrics |= found
            return loss, {**metrics, "loss": (loss, jnp.zeros(()))}

        grads, metrics = everywhere(_accumulate(loss_of, state["params"], masked, key, micro_steps))
        metrics |= everywhere(ledger)
        loss, one = metrics["loss"][0], jnp.ones(())
        if config.optim.spike_window:
            watched = state["watched"]
            spiked = optim.spike(watched, loss, traced.spike_sigmas)
            metrics["spike_fraction"] = (spiked.astype(jnp.float32), one)
            state, grad_norm = _update(config.optim, state, grads, traced, spiked)
            state["watched"] = optim.watch(watched, loss, state["skipped_in_row"] == 0)
        else:
            state, grad_norm = _update(config.optim, state, grads, traced)
        skipped = state["skipped_in_row"].astype(jnp.float32)
        return state, metrics | {
            "loss": (loss, one),
            "grad_norm": (grad_norm, one),
            "skipped_in_row": (skipped, one),
        }

    return step


def _accumulate(
    loss_of: Callable, params: Any, batch: Batch, key: jax.Array, parts: int
) -> tuple[Any, Metrics]:
    """Gradients and metrics summed over `parts` microbatches, one after the other in memory."""
    gradient = jax.grad(loss_of, has_aux=True)
    if parts == 1:
        return gradient(params, batch, jax.random.fold_in(key, 0))
    # Microbatch i takes rows i, i + parts, ...: each device's rows are spread over all of them, and none moves.
    micro = jax.tree.map(
        lambda x: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1), batch
    )
    example = jax.tree.map(lambda x: x[0], micro)
    zeros = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, params, example, key)
    )

    def add(total: Any, item: tuple[jax.Array, Batch]) -> tuple[Any, None]:
        index, part = item
        return jax.tree.map(
            jnp.add, total, gradient(params, part, jax.random.fold_in(key, index))
        ), None

    return jax.lax.scan(add, zeros, (jnp.arange(parts), micro))[0]


def _update(
    settings: knobs.Optim,
    state: State,
    grads: Any,
    traced: StepInputs,
    spiked: jax.Array | None = None,
) -> tuple[State, jax.Array]:
    """Clip and step; a non-finite gradient or a spike leaves parameters and moments as they were, and is counted."""
    params, moments = state["params"], state["optimizer"]
    clipped, norm = optim.clip(grads, settings.clip_norm)
    transform = optim.transformation(settings, params, traced.weight_decay)
    direction, new_moments = transform.update(clipped, moments, params)
    stepped = jax.tree.map(lambda p, d: p - traced.learning_rate * d, params, direction)
    fine = jnp.isfinite(norm) if spiked is None else jnp.isfinite(norm) & ~spiked

    def keep(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(fine, n, o), new, old)

    bad = 1 - fine.astype(jnp.int32)
    return {
        "params": keep(stepped, params),
        "optimizer": keep(new_moments, moments),
        "step": state["step"] + 1,
        "skipped": state["skipped"] + bad,
        "skipped_in_row": (state["skipped_in_row"] + 1) * bad,
    }, norm


class Program:
    """The update of one run, or of several that share it, over all devices of a mesh."""

    def __init__(
        self,
        config: knobs.Config,
        special: Special,
        vocab_size: int,
        mesh: Mesh,
        runs: int = 1,
        slots: int = 0,
    ):
        """Lay out the state; compile nothing yet.

        Args:
          config: the run's, or the first run's.
          special: ids of the special tokens.
          vocab_size: of the model.
          mesh: of `mesh_for`.
          runs: trained by one program; they differ in step inputs alone.
          slots: prediction slots of a row, where a run needs more than the first.
        """
        self.config, self.mesh, self.runs, self.vocab_size = config, mesh, runs, vocab_size

        def init(seed: jax.Array) -> State:
            return init_state(config, vocab_size, seed)

        self.shapes = jax.eval_shape(init, np.uint32(0))  # of one run, as is the layout
        self.layout = sharding.state_layout(self.shapes, mesh, config.parallel)
        self._layout = sharding.stacked(self.layout, mesh) if runs > 1 else self.layout
        self._init = jax.jit(init, out_shardings=self.layout)
        self._update = compile_step(
            config, special, vocab_size, mesh, self._layout, several=runs > 1, slots=slots
        )

    def like(self) -> Any:
        """Return shapes, types and places of one run's state, for a checkpoint to restore."""
        return jax.tree.map(
            lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
            self.shapes,
            self.layout,
        )

    def init(self, seed: int) -> State:
        """Initialise the state of one run."""
        return self._init(np.uint32(seed))

    def hold(self, state: State) -> State:
        """Keep one run's state for `place`: on the host, where others are still to come."""
        return jax.device_get(state) if self.runs > 1 else state

    def place(self, states: Sequence[State]) -> State:
        """Place the states of all runs as the update takes them."""
        return sharding.stack(states, self._layout) if self.runs > 1 else states[0]

    def update(
        self, state: State, batch: Batch, inputs: Sequence[StepInputs]
    ) -> tuple[State, Metrics]:
        """Dispatch one update of all runs on one batch; return before the device has made it."""
        on_device = batch
        if self.config.parallel.step == "jit":
            on_device = sharding.place(batch, self.config.batch_size, self.mesh)
        numbers = (
            jax.tree.map(lambda *each: np.stack(each), *inputs) if self.runs > 1 else inputs[0]
        )
        return self._update(state, on_device, numbers)

    def metrics(self, on_device: Metrics) -> list[dict[str, tuple[float, float]]]:
        """Fetch the metrics of an update, those of each run by themselves."""
        found = sharding.to_host(on_device)
        if self.runs == 1:
            return [{name: (float(total), float(count)) for name, (total, count) in found.items()}]
        return [
            {name: (float(total[i]), float(count[i])) for name, (total, count) in found.items()}
            for i in range(self.runs)
        ]

    def run_state(self, state: State, index: int) -> State:
        """Take the state of one run out of that of all."""
        return sharding.pick(state, index, self.layout) if self.runs > 1 else state

    def run_params(self, state: State, index: int) -> Any:
        """Take the parameters of one run out of the state of all."""
        params, layout = state["params"], self.layout["params"]
        return sharding.pick(params, index, layout) if self.runs > 1 else params


def mesh_for(config: knobs.Config, runs: int = 1) -> Mesh:
    """Build the mesh a program trains on; refuse rows or runs that do not fit it."""
    if runs > 1 and (config.parallel.step == "pmap" or jax.process_count() > 1):
        raise ConfigError(
            "runs train together under jit and in one process", "train them one by one"
        )
    mesh = sharding.make_mesh(config.parallel, runs)
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
    several: bool = False,
    slots: int = 0,
) -> Step:
    """The update over all devices, jitted over the mesh or pmapped; both compute the same numbers.

    Of `several` arms, the leaves of state, traced numbers and metrics have a first axis that counts them.
    """
    if config.parallel.step == "jit":
        how = _together(config.parallel)
        if several and how == "vmap":
            config = dataclasses.replace(config, model=batched(config.model))
        update = make_step(config, special, vocab_size, slots=slots)
        return jax.jit(
            _of_arms(update, mesh, how) if several else update,
            in_shardings=(
                layout,
                jax.NamedSharding(mesh, sharding.BATCH),
                sharding.of_arms(mesh, several),
            ),
            out_shardings=(layout, sharding.replicated(mesh)),
            donate_argnums=0,
        )
    return sharding.pmap_wrap(make_step(config, special, vocab_size, axis="data"), mesh)


def _together(settings: knobs.Parallel) -> str:
    """Inside a device, arms go one after the other (map) or all at once (vmap).

    On a CPU the first is faster, on an accelerator a small model fills the device with the second only.
    """
    if devices.prng(settings) != "threefry2x32":
        return "map"  # under vmap other generators draw other bits than alone
    return devices.here().arms if settings.arms == "auto" else settings.arms


def _of_arms(update: Step, mesh: Mesh, how: str) -> Step:
    """The update of many states on one batch, each with numbers of its own."""

    def each(states: State, batch: Batch, traced: StepInputs) -> tuple[State, Metrics]:
        if how == "vmap":
            return jax.vmap(update, in_axes=(0, None, 0))(states, batch, traced)
        return jax.lax.map(lambda one: update(one[0], batch, one[1]), (states, traced))

    if mesh.shape["arm"] == 1:
        return each
    arm = jax.sharding.PartitionSpec("arm")
    specs = {"in_specs": (arm, jax.sharding.PartitionSpec(), arm), "out_specs": arm}
    return jax.shard_map(each, mesh=mesh, axis_names={"arm"}, check_vma=False, **specs)
