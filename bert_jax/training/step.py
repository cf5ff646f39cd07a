"""One update of one run, as a pure function: mask, count targets, loss, gradient, clip, optimizer.

`make_update` builds `update(state, batch, step_inputs) -> (state, metrics)`. All that an update
reads is in its arguments: the state (parameters, moments, counts of updates), a batch of the host,
and the numbers of this update (`StepInputs`). `training/program.py` compiles it for devices and
runs.

A step is the number of completed updates. So `state["step"]` before an update is the 0-based index
of the update. Functions that compute something for an update take this `index`. Functions that
record something after the update take the `step`, which is one more. The methods of `Run` and
`Runs` take the `step` too.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from bert_jax import objectives
from bert_jax.batch import Batch, Metrics, Special, StepInputs
from bert_jax.config import devices, knobs
from bert_jax.masking import drawn_quotas, quotas, rates
from bert_jax.objectives import network
from bert_jax.training import optim

# Keys: params, optimizer, step, skipped, skipped_in_row.
State = dict[str, Any]
Update = Callable[[State, Batch, StepInputs], tuple[State, Metrics]]


def draw_state(config: knobs.Config, vocab_size: int, seed: Array) -> State:
    """Return the state of a run with drawn parameters and no update yet."""
    return make_first_state(config, network.init_params(config, vocab_size, seed))


def make_first_state(config: knobs.Config, params: Any) -> State:
    """Return the state of a run with the given parameters and no update yet."""
    zero = jnp.zeros((), jnp.int32)
    return {
        "params": params,
        # Weight decay does not shape the optimizer's state.
        "optimizer": optim.build_optimizer(config.optim, params, weight_decay=0.0).init(params),
        "step": zero,
        "skipped": zero,
        "skipped_in_row": zero,
    }


def make_update(
    config: knobs.Config, special: Special, vocab_size: int, axis: str | None = None, slots: int = 0
) -> Update:
    """Build the update of one run.

    Args:
      config: the config of the run. Traced numbers of the config are ignored; `StepInputs` carries
        them.
      special: ids of the special tokens.
      vocab_size: tokens of the vocabulary.
      axis: under pmap, the name of the mapped axis, over which sums run.
      slots: the least number of prediction slots of a row, because other runs of the program may
        have higher masking rates.
    """
    model = network.build_network(config, vocab_size, train=True)
    table = objectives.configure(config.objectives)
    needed = quotas.count_slots(config.masking, config.sequence_length, config.packing)
    corrupt = functools.partial(
        objectives.choose_corruption(table),
        settings=config.masking,
        special=special,
        vocab_size=vocab_size,
        slots=max(slots, needed),
    )

    def sum_over_devices(tree: Any) -> Any:
        # Under jit the arrays are global, and the compiler adds the reduction.
        return jax.lax.psum(tree, axis) if axis else tree

    def update(state: State, batch: Batch, step_inputs: StepInputs) -> tuple[State, Metrics]:
        # The scores that decide a mask follow from (seed, copy, example, position) alone: no device
        # and no batch size changes a mask. The ledger has sums of what was really masked.
        masked, ledger = corrupt(batch, step_inputs) if config.masked else (batch, {})

        # Count the targets of each objective, or of each part of an objective: hybrid has two
        # parts, mlm and causal_lm. They are counted over all devices, and before the split into
        # microbatches: all divide by the same numbers. Each counted name has a metric NAME_loss.
        counts = sum_over_devices(objectives.count_targets(table, masked))
        key = make_dropout_key(config.parallel, step_inputs.seed, state["step"], axis)
        frozen = optim.find_frozen(state["params"], config.optim.freeze)

        def compute_loss(params: Any, micro: Batch, dropout: Array) -> tuple[Array, Metrics]:
            # No gradient of frozen parameters is computed, or counted in the norm. Against weight
            # decay and earlier moments, `optim.build_optimizer` sets their direction to 0.
            params = jax.tree.map(
                lambda p, fixed: jax.lax.stop_gradient(p) if fixed else p, params, frozen
            )
            outputs = network.compute_outputs(model, params, micro, dropout=dropout)
            micro_metrics: Metrics = {}
            for name, objective in table.items():
                micro_metrics |= objective.loss(outputs[name], micro)
            # The loss is a weighted sum: of each part of an objective, the total over its targets
            # divided by their count. So losses and gradients of microbatches and devices add up.
            loss = jnp.zeros(())
            for name, count in counts.items():
                total, _ = micro_metrics[f"{name}_loss"]
                loss += step_inputs.weights[name] * total / jnp.maximum(count, 1.0)
            return loss, micro_metrics

        microbatches = config.optim.accumulation
        (loss, metrics), grads = sum_over_devices(
            accumulate_gradients(compute_loss, state["params"], masked, key, microbatches)
        )
        state, norm = apply_gradient(config.optim, state, grads, step_inputs)
        one = jnp.ones(())  # a metric is (sum, count)
        metrics |= sum_over_devices(ledger) | {
            "loss": (loss, one),
            "grad_norm": (norm, one),
            "skipped": (state["skipped"].astype(jnp.float32), one),
            "skipped_in_row": (state["skipped_in_row"].astype(jnp.float32), one),
        }
        return state, metrics

    return update


def make_dropout_key(settings: knobs.Parallel, seed: Any, index: Array, axis: str | None) -> Array:
    """Make the random key for the dropout of the update with a 0-based index.

    Under pmap each device has a key of its own, and draws the bits of its rows. Under jit the bits
    of all rows are drawn from one key. So with dropout, pmap and jit give different numbers.
    """
    key = jax.random.key(seed, impl=devices.choose_prng(settings))
    key = jax.random.fold_in(key, index)
    return jax.random.fold_in(key, jax.lax.axis_index(axis)) if axis else key


def accumulate_gradients(
    compute_loss: Callable, params: Any, batch: Batch, key: Array, microbatches: int
) -> tuple[tuple[Array, Metrics], Any]:
    """Sum loss, metrics and gradients over the microbatches, computed one after the other.

    `compute_loss` returns the loss and the metrics of (parameters, microbatch, key).
    """
    gradient = jax.value_and_grad(compute_loss, has_aux=True)
    if microbatches == 1:
        return gradient(params, batch, jax.random.fold_in(key, 0))
    # [B, ...] becomes [n, B / n, ...] for n microbatches. Of 6 rows in 2 microbatches, the first
    # has rows 0, 2, 4 and the second 1, 3, 5: the rows of each device are spread over all
    # microbatches, and none moves to another device.
    stacked = jax.tree.map(
        lambda x: x.reshape(-1, microbatches, *x.shape[1:]).swapaxes(0, 1), batch
    )
    first = jax.tree.map(lambda x: x[0], stacked)
    shapes = jax.eval_shape(gradient, params, first, key)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(total: Any, item: tuple[Array, Batch]) -> tuple[Any, None]:
        index, micro = item
        summand = gradient(params, micro, jax.random.fold_in(key, index))
        return jax.tree.map(jnp.add, total, summand), None

    return jax.lax.scan(add, zeros, (jnp.arange(microbatches), stacked))[0]


def apply_gradient(
    settings: knobs.Optim, state: State, grads: Any, step_inputs: StepInputs
) -> tuple[State, Array]:
    """Clip a gradient and update the state; return the state and the norm before clipping.

    If the gradient is not finite, parameters and moments stay as they were, and the update is
    counted as skipped. The host ends the run after too many skipped updates in a row.
    """
    grads, norm = optim.clip_gradient(grads, settings.clip_norm)
    optimizer = optim.build_optimizer(settings, state["params"], step_inputs.weight_decay)
    direction, moments = optimizer.update(grads, state["optimizer"], state["params"])
    params = jax.tree.map(
        lambda p, d: p - step_inputs.learning_rate * d, state["params"], direction
    )
    finite = jnp.isfinite(norm)
    skipped = 1 - finite.astype(jnp.int32)
    return {
        "params": optax.tree.where(finite, params, state["params"]),
        "optimizer": optax.tree.where(finite, moments, state["optimizer"]),
        "step": state["step"] + 1,
        "skipped": state["skipped"] + skipped,
        "skipped_in_row": (state["skipped_in_row"] + 1) * skipped,
    }, norm


def compute_inputs(config: knobs.Config, index: int) -> StepInputs:
    """Compute the step inputs of the update with a 0-based index, on the host."""
    masking = config.masking
    length = config.sequence_length
    select_quotas = predict_quotas = drawn = share = None
    if masking.draw == "fixed":
        rate = rates.rate_at(masking, index, config.steps)
        select_quotas = quotas.selection_quotas(masking, rate, length)
        predict_quotas = quotas.prediction_quotas(masking, rate, length)
    else:
        diffusion = config.objectives.get("diffusion")
        # A gamma of 0 leaves out the weights of the likelihood bound.
        gamma = diffusion.gamma if diffusion else 0.0
        drawn = drawn_quotas.make_rate_tables(masking, length, gamma)
    weights: dict[str, float] = {}
    for name, options in config.objectives.items():
        weights |= objectives.TABLE[name].split_weight(options)
        if name == "hybrid":
            share = np.float32(options.share)
    return StepInputs(
        quotas=select_quotas,
        predict_quotas=predict_quotas,
        replace=np.asarray(masking.replace, np.float32),
        weights={name: np.float32(weight) for name, weight in weights.items()},
        learning_rate=np.float32(optim.make_schedule(config.optim, config.steps)(index)),
        weight_decay=np.float32(config.optim.weight_decay),
        seed=np.uint32(config.seed),
        drawn=drawn,
        share=share,
    )
