"""Learning-rate schedules, gradient clipping and the optimizers, as the directions they step in.

An optimizer here returns d, and the caller does `params -= rate * d`: the learning rate and the
weight decay may be traced numbers, so runs that differ only in those share one program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.system.trees import names

LAYER = re.compile(r"(?:^|/)layer_(\d+)/")
BELOW = re.compile(
    r"/embeddings/|encoder/(projection|relative_positions)/"
)  # what stands below the layers


# --- learning rate --------------------------------------------------------------------------------


def schedule(settings: knobs.Optim, steps: int) -> Callable[[int], float]:
    """Return a function of an update's 0-based index: its learning rate, in float64 on the host.

    All warm-ups are peak * step / warmup_steps, as in the original and in transformers: 0 at step
    0, the peak at index warmup_steps. `linear` and `cosine` then run from the peak to
    final_fraction * peak at index `steps`, which no update has: as in all published
    implementations the last update, at index steps - 1, is a step short of it. `wsd` is `linear`
    over the last `decay_fraction` of the steps, and the peak before. `linear2018` is the line from
    the peak at step 0 to 0 at `steps`; the warm-up overrides its beginning, so that the rate drops
    below the peak where the line takes over.
    """
    peak, warmup, kind, last = (
        settings.learning_rate,
        settings.warmup_steps,
        settings.schedule,
        settings.final_fraction,
    )
    decay = settings.stable_until(steps) if kind == "wsd" else warmup

    def rate(step: int) -> float:
        if step < warmup:
            return peak * step / warmup
        if kind == "constant" or step < decay:
            return peak
        if kind == "linear2018":
            return peak * (1 - min(step, steps) / steps)
        progress = min((step - decay) / max(steps - decay, 1), 1.0)
        share = 0.5 * (1 + math.cos(math.pi * progress)) if kind == "cosine" else 1 - progress
        return peak * (last + (1 - last) * share)

    return rate


# --- weight decay ---------------------------------------------------------------------------------


def decayed(params: Any, no_decay: str) -> Any:
    """Return a tree of bools: whether a parameter decays.

    A pattern `no_decay` must match something; without one, everything decays.
    """
    pattern = re.compile(no_decay) if no_decay else None
    named = names(params)
    mask = jax.tree.map(lambda name: pattern is None or pattern.search(name) is None, named)
    if pattern is not None and all(jax.tree.leaves(mask)):
        examples = ", ".join(jax.tree.leaves(named)[:6])
        raise ConfigError(
            f"optim.no_decay = {no_decay!r} matches no parameter", f"names look like: {examples}"
        )
    return mask


# --- layers that learn less, or not at all --------------------------------------------------------


def frozen(params: Any, pattern: str) -> Any:
    """Return a tree of bools: whether a parameter stays as it is.

    A pattern must match some parameters and leave some.
    """
    named = names(params)
    mask = jax.tree.map(lambda name: bool(pattern) and re.search(pattern, name) is not None, named)
    found = jax.tree.leaves(mask)
    if pattern and (not any(found) or all(found)):
        examples = ", ".join(
            sorted({name.rsplit("/", 1)[0] for name in jax.tree.leaves(named)})[:6]
        )
        what = "every parameter" if any(found) else "no parameter"
        raise ConfigError(
            f"optim.freeze = {pattern!r} matches {what}", f"names look like: {examples}"
        )
    return mask


def shares(params: Any, decay: float) -> Any:
    """Return a tree of the share of the learning rate that each parameter takes.

    With n layers: heads, pooler and a final norm 1, layer i (from 0) decay ** (n - i), embeddings
    and their projection, and relative positions, decay ** (n + 1).
    """

    named = names(params)
    numbers = [int(match[1]) for name in jax.tree.leaves(named) if (match := LAYER.search(name))]
    layers = max(numbers) + 1

    def share(name: str) -> float:
        if match := LAYER.search(name):
            return decay ** (layers - int(match[1]))
        return decay ** (layers + 1) if BELOW.search(name) else 1.0

    return jax.tree.map(share, named)


# --- clipping -------------------------------------------------------------------------------------


def clip(grads: Any, norm: float | jax.Array) -> tuple[Any, jax.Array]:
    """Scale gradients to a global norm of at most `norm` (0: never); return them and their norm.

    Gradients whose norm is not finite are returned untouched: scaling would turn infinities into
    NaN and everything else into 0, and hide what the caller has to see.
    """
    before = optax.tree.norm(jax.tree.map(lambda g: g.astype(jnp.float32), grads))
    active = jnp.isfinite(before) & (before > norm) & (norm > 0)
    factor = jnp.where(active, norm / jnp.where(active, before, 1.0), 1.0)
    return jax.tree.map(lambda g: (g * factor).astype(g.dtype), grads), before


# --- optimizers -----------------------------------------------------------------------------------


def transformation(
    settings: knobs.Optim, params: Any, weight_decay: float | jax.Array
) -> optax.GradientTransformation:
    """Build the optimizer as its unscaled direction d, for params <- params - learning_rate * d.

    With m and v the exponential averages of g and g**2, and p the parameter:

        adam2018   d = m / (sqrt(v) + epsilon) + weight_decay * p       no bias correction
        adamw      d = m^ / (sqrt(v^) + epsilon) + weight_decay * p     m^, v^ bias-corrected
        lamb       d = (|p| / |u|) * u,  u the direction of adamw       1 where either norm is 0

    Where the decay mask says no, weight_decay is 0; LAMB's ratio applies to those tensors too, as
    in the paper's algorithm. `layer_decay` and `freeze` then scale d, for some tensors to 0.

    Of `params` only names matter; `weight_decay` may be traced. The state is that of the moments
    alone, whatever else is chained.
    """
    moments = scale_by_moments(
        settings.b1, settings.b2, settings.epsilon, correct=settings.name != "adam2018"
    )
    rest = [optax.add_decayed_weights(weight_decay, decayed(params, settings.no_decay))]
    if settings.name == "lamb":
        rest.append(optax.scale_by_trust_ratio())
    if settings.layer_decay != 1:
        taken = shares(params, settings.layer_decay)
        rest.append(optax.stateless(lambda d, _: jax.tree.map(jnp.multiply, d, taken)))
    if settings.freeze:
        rest.append(optax.masked(optax.set_to_zero(), frozen(params, settings.freeze)))
    chain = optax.chain(moments, *rest)

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
        states = (state, *(one.init(params) for one in rest))  # those of `rest` hold no array
        direction, (state, *_) = chain.update(grads, states, params)
        return direction, state

    return optax.GradientTransformation(moments.init, update)


def scale_by_moments(
    b1: float, b2: float, epsilon: float, correct: bool
) -> optax.GradientTransformation:
    """Scale by Adam's moments in float32, with or without bias correction.

    `optax.scale_by_adam` always corrects, and by 1 - decay ** count, whose cancellation costs
    float32 four digits at decay 0.999.
    """

    def init(params: Any) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        copies = jax.tree.map(jnp.copy, zeros)
        return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), zeros, copies)

    def correction(decay: float, count: jax.Array) -> jax.Array | float:
        return -jnp.expm1(count * math.log(decay)) if correct and decay else 1.0

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
        del params
        count = optax.safe_increment(state.count)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        scale1, scale2 = correction(b1, count), correction(b2, count)
        direction = jax.tree.map(
            lambda m, v: (m / scale1) / (jnp.sqrt(v / scale2) + epsilon), mu, nu
        )
        return direction, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)
