"""Learning-rate schedules, gradient clipping and the optimizers, as the directions they step in.

An optimizer here returns d, and the caller does `params -= rate * d`: the rate, like the weight decay, may be a traced
number, so arms that differ only in those share one program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.trees import names

STACKED = re.compile(
    r"(^|/)layers/(?!\d)"
)  # names whose leading axis counts layers: each slice is a tensor of its own


# --- learning rate --------------------------------------------------------------------------------------------------


def schedule(settings: knobs.Optim, steps: int) -> Callable[[int], float]:
    """The learning rate of the update with 0-based index `step`, in float64 on the host.

    All warm-ups are peak * step / warmup_steps, as in the original and in transformers: 0 at step 0, the peak reached
    at index warmup_steps. `linear` and `cosine` then run from the peak to final_fraction * peak at index `steps`, which
    no update has: as in all published implementations the last one, at index steps - 1, is a step short of it;
    `linear2018` is the line from the peak at step 0 to 0 at `steps`, overridden while warming up, so that it drops
    below the peak before it is followed.
    """
    peak, warmup, kind, last = (
        settings.learning_rate,
        settings.warmup_steps,
        settings.schedule,
        settings.final_fraction,
    )

    def rate(step: int) -> float:
        if step < warmup:
            return peak * step / warmup
        if kind == "constant":
            return peak
        if kind == "linear2018":
            return peak * (1 - min(step, steps) / steps)
        progress = min((step - warmup) / max(steps - warmup, 1), 1.0)
        share = 1 - progress if kind == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        return peak * (last + (1 - last) * share)

    return rate


# --- weight decay ---------------------------------------------------------------------------------------------------


def decayed(params: Any, no_decay: str) -> Any:
    """A tree of bools: whether a parameter decays. `no_decay` must match something; empty, everything decays."""
    pattern = re.compile(no_decay) if no_decay else None
    named = names(params)
    mask = jax.tree.map(lambda name: pattern is None or pattern.search(name) is None, named)
    if pattern is not None and all(jax.tree.leaves(mask)):
        examples = ", ".join(jax.tree.leaves(named)[:6])
        raise ConfigError(
            f"optim.no_decay = {no_decay!r} matches no parameter", f"names look like: {examples}"
        )
    return mask


# --- layers that learn less, or not at all -------------------------------------------------------------------------


def frozen(params: Any, pattern: str) -> Any:
    """A tree of bools: whether a parameter stays as it is. A pattern must match some, and leave some."""
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
    """A tree of the share of the learning rate that each parameter takes.

    With n layers: heads, pooler and a final norm 1, layer i (from 0) decay ** (n - i), embeddings decay ** (n + 1).
    """

    def share(name: str, leaf: Any) -> float | jax.Array:
        if STACKED.search(name):
            count = leaf.shape[0]
            each = decay ** (count - np.arange(count, dtype=np.float32))
            return jnp.asarray(each.reshape(count, *[1] * (leaf.ndim - 1)))
        return decay ** (layers + 1) if "/embeddings/" in name else 1.0

    named = names(params)
    pairs = zip(jax.tree.leaves(named), jax.tree.leaves(params), strict=True)
    layers = next(leaf.shape[0] for name, leaf in pairs if STACKED.search(name))
    return jax.tree.map(share, named, params)


# --- clipping -------------------------------------------------------------------------------------------------------


def clip(grads: Any, norm: float | jax.Array) -> tuple[Any, jax.Array]:
    """Scales gradients to a global norm of at most `norm` (0: never); returns them and the norm they had.

    A non-finite norm is returned as it is with the gradients untouched: scaling would turn infinities into NaN and
    everything else into 0, and hide what the caller has to see.
    """
    before = optax.tree.norm(jax.tree.map(lambda g: g.astype(jnp.float32), grads))
    active = jnp.isfinite(before) & (before > norm) & (norm > 0)
    factor = jnp.where(active, norm / jnp.where(active, before, 1.0), 1.0)
    return jax.tree.map(lambda g: (g * factor).astype(g.dtype), grads), before


# --- spikes ---------------------------------------------------------------------------------------------------------


def usual(settings: knobs.Optim) -> dict[str, jax.Array]:
    """Make the state in which losses are watched for spikes: the last ones that were learned from, and how many."""
    return {
        "losses": jnp.zeros(settings.spike_window, jnp.float32),
        "count": jnp.zeros((), jnp.int32),
    }


def spike(watched: dict[str, jax.Array], loss: jax.Array, sigmas: jax.Array) -> jax.Array:
    """Return whether a loss is so many standard deviations above the mean of a full window."""
    losses = watched["losses"]
    known = watched["count"] >= losses.size
    return known & (loss > jnp.mean(losses) + sigmas * jnp.std(losses))


def watch(
    watched: dict[str, jax.Array], loss: jax.Array, learned: jax.Array
) -> dict[str, jax.Array]:
    """Take a loss into the window in place of the oldest, if it was learned from: a spike changes nothing of it."""
    losses, count = watched["losses"], watched["count"]
    learned = learned & jnp.isfinite(loss)
    place = jnp.arange(losses.size, dtype=jnp.int32) == count % losses.size
    return {
        "losses": jnp.where(place & learned, loss, losses),
        "count": count + learned.astype(jnp.int32),
    }


# --- optimizers -----------------------------------------------------------------------------------------------------


def transformation(
    settings: knobs.Optim, params: Any, weight_decay: float | jax.Array
) -> optax.GradientTransformation:
    """The optimizer as its unscaled direction d, for params <- params - learning_rate * d.

    With m and v the exponential averages of g and g**2, and p the parameter:

        adam2018   d = m / (sqrt(v) + epsilon) + weight_decay * p           no bias correction, as in the original
        adamw      d = m^ / (sqrt(v^) + epsilon) + weight_decay * p         m^, v^ bias-corrected
        lamb       d = (|p| / |u|) * u,  u the direction of adamw           1 where either norm is 0

    `params` gives names only (shapes will do). Where the decay mask says no, weight_decay is 0; LAMB's ratio applies to
    those tensors too, as in the paper's algorithm, and is taken layer by layer when layers are stacked in one array.
    The state does not depend on weight_decay. `freeze` and `layer_decay` then scale d, for some to 0.
    """
    b1, b2, epsilon = settings.b1, settings.b2, settings.epsilon
    mask = decayed(params, settings.no_decay)
    named = names(params)
    fixed = frozen(params, settings.freeze)
    taken = shares(params, settings.layer_decay) if settings.layer_decay != 1 else None

    def init(params: Any) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return optax.ScaleByAdamState(
            jnp.zeros([], jnp.int32), zeros, jax.tree.map(jnp.copy, zeros)
        )

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
        count = optax.safe_increment(state.count)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        corrected = settings.name != "adam2018"
        scale1, scale2 = (_correction(b, count) if corrected else 1.0 for b in (b1, b2))

        def direction(
            m: jax.Array, v: jax.Array, p: jax.Array, decays: bool, name: str
        ) -> jax.Array:
            d = (m / scale1) / (jnp.sqrt(v / scale2) + epsilon)
            d = d + weight_decay * p if decays else d
            return d * _trust_ratio(p, d, name) if settings.name == "lamb" else d

        found = jax.tree.map(direction, mu, nu, params, mask, named)
        if taken is not None:
            found = jax.tree.map(jnp.multiply, found, taken)
        found = jax.tree.map(lambda d, fixed: jnp.zeros_like(d) if fixed else d, found, fixed)
        return found, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def _correction(decay: float, count: jax.Array) -> jax.Array | float:
    """1 - decay ** count without the cancellation that costs float32 four digits at decay 0.999."""
    return -jnp.expm1(count * math.log(decay)) if decay else 1.0


def _trust_ratio(param: jax.Array, direction: jax.Array, name: str) -> jax.Array:
    axes = tuple(range(1, param.ndim)) if STACKED.search(name) else None
    p, d = (jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True)) for x in (param, direction))
    return jnp.where((p > 0) & (d > 0), p / jnp.where(d > 0, d, 1.0), 1.0)
