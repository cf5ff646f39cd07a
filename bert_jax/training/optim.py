"""Learning-rate schedules, and optimizers that return the direction of an update.

An optimizer here returns d, and the update does `params -= rate * d`. The learning rate and the
weight decay may be traced numbers, so runs that differ only in these numbers share one program.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.system.trees import list_names

LAYER = re.compile(r"(?:^|/)layer_(\d+)/")
BELOW = re.compile(r"/(embeddings|projection|relative_positions)/")  # below all layers


def make_schedule(settings: knobs.Optim, steps: int) -> Callable[[int], float]:
    """Return the function that maps the 0-based index of an update to its learning rate.

    All warm-ups are peak * index / warmup_steps, as in the original and in transformers: 0 at index
    0, the peak at index warmup_steps. `linear` and `cosine` then run from the peak to
    final_fraction * peak at index `steps`. The last update has index steps - 1, so as in all
    published implementations it does not quite reach that end. `wsd` is `linear` over the last
    `decay_fraction` of the steps, and the peak before. `linear2018` is the line from the peak at
    index 0 to 0 at `steps`. The warm-up overrides the beginning of that line, so the rate drops
    below the peak where the warm-up ends. Rates are computed in float64 on the host.
    """
    peak = settings.learning_rate
    warmup = settings.warmup_steps
    last = settings.final_fraction
    decay = settings.stable_until(steps) if settings.schedule == "wsd" else warmup

    def rate(index: int) -> float:
        if index < warmup:
            return peak * index / warmup
        if settings.schedule == "constant" or index < decay:
            return peak
        if settings.schedule == "linear2018":
            return peak * (1 - min(index, steps) / steps)
        progress = min((index - decay) / max(steps - decay, 1), 1.0)
        share = 1 - progress
        if settings.schedule == "cosine":
            share = 0.5 * (1 + math.cos(math.pi * progress))
        return peak * (last + (1 - last) * share)

    return rate


# --- which parameters -----------------------------------------------------------------------------


def find_matches(params: Any, knob: str, pattern: str) -> Any:
    """Return a tree of bools: whether each parameter's name matches a pattern.

    A pattern that no name matches is refused. The empty pattern matches no name.
    """
    named = list_names(params)
    mask = jax.tree.map(lambda name: bool(pattern) and bool(re.search(pattern, name)), named)
    if pattern and not any(jax.tree.leaves(mask)):
        _refuse_pattern(knob, pattern, "no parameter", named)
    return mask


def find_decayed(params: Any, no_decay: str) -> Any:
    """Return a tree of bools: whether each parameter has weight decay.

    Without the pattern `no_decay`, every parameter has it.
    """
    spared = find_matches(params, "no_decay", no_decay)
    return jax.tree.map(lambda matches: not matches, spared)


def find_frozen(params: Any, pattern: str) -> Any:
    """Return a tree of bools: whether each parameter is frozen; refuse to freeze all of them."""
    mask = find_matches(params, "freeze", pattern)
    if all(jax.tree.leaves(mask)):
        _refuse_pattern("freeze", pattern, "every parameter", list_names(params))
    return mask


def _refuse_pattern(knob: str, pattern: str, what: str, named: Any) -> None:
    modules = sorted({name.rsplit("/", 1)[0] for name in jax.tree.leaves(named)})
    raise ConfigError(
        f"optim.{knob} = {pattern!r} matches {what}", f"names look like: {', '.join(modules[:6])}"
    )


def share_rates(params: Any, decay: float) -> Any:
    """Return a tree of factors: the share of the learning rate for each parameter.

    With n layers, layer i (from 0) has decay ** (n - i). Embeddings, their projection and relative
    positions have decay ** (n + 1). Heads, the pooler and a final norm have 1.
    """
    named = list_names(params)
    matches = [LAYER.search(name) for name in jax.tree.leaves(named)]
    layers = 1 + max(int(match[1]) for match in matches if match)

    def share(name: str) -> float:
        if match := LAYER.search(name):
            return decay ** (layers - int(match[1]))
        return decay ** (layers + 1) if BELOW.search(name) else 1.0

    return jax.tree.map(share, named)


# --- optimizers -----------------------------------------------------------------------------------


def clip_gradient(grads: Any, limit: float) -> tuple[Any, jax.Array]:
    """Scale a gradient to a global norm of at most `limit`.

    Returns the gradient, and its norm before it was scaled. A limit of 0 never clips. The norm is
    not finite if any number of the gradient is not.
    """
    norm = optax.tree.norm(grads)
    if limit:  # optax.clip_by_global_norm would compute the norm again
        grads = jax.tree.map(lambda g: jnp.where(norm < limit, g, g / norm * limit), grads)
    return grads, norm


def build_optimizer(
    settings: knobs.Optim, params: Any, weight_decay: float | jax.Array
) -> optax.GradientTransformation:
    """Build an optimizer that returns the unscaled direction d of an update.

    The update is params <- params - learning_rate * d. With m and v the exponential averages of the
    gradient g and of g**2, and p the parameter:

        adam2018   d = m / (sqrt(v) + epsilon) + weight_decay * p       no bias correction
        adamw      d = m^ / (sqrt(v^) + epsilon) + weight_decay * p     m^, v^ bias-corrected
        lamb       d = (|p| / |u|) * u,  u the direction of adamw       1 where either norm is 0

    For parameters that match `no_decay`, weight_decay is 0. LAMB's ratio applies to them too, as in
    the paper's algorithm. `layer_decay` and `freeze` then scale d, for some parameters to 0. Every
    parameter has moments, so that a resumed run may freeze other parameters.

    Of `params` only names and shapes matter. `weight_decay` may be traced. optax corrects the
    averages by 1 - b**count in float32, which is 5e-5 off at b = 0.999 in the first update.
    """
    scale_by_moments = scale_by_adam2018 if settings.name == "adam2018" else optax.scale_by_adam
    parts = [
        scale_by_moments(settings.b1, settings.b2, settings.epsilon),
        optax.add_decayed_weights(weight_decay, find_decayed(params, settings.no_decay)),
    ]
    if settings.name == "lamb":
        parts.append(optax.scale_by_trust_ratio())
    if settings.layer_decay != 1:
        taken = share_rates(params, settings.layer_decay)
        parts.append(optax.stateless(lambda d, _: jax.tree.map(jnp.multiply, d, taken)))
    if settings.freeze:
        parts.append(optax.masked(optax.set_to_zero(), find_frozen(params, settings.freeze)))
    return optax.chain(*parts)


def scale_by_adam2018(b1: float, b2: float, epsilon: float) -> optax.GradientTransformation:
    """Return Adam's scaling without bias correction, as the original BERT has it."""

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
        mu = optax.tree.update_moment(grads, state.mu, b1, 1)
        nu = optax.tree.update_moment_per_elem_norm(grads, state.nu, b2, 2)
        direction = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu)
        # Updates are counted too, so that the state has the structure of Adam's.
        return direction, optax.ScaleByAdamState(optax.safe_increment(state.count), mu, nu)

    return optax.GradientTransformation(optax.scale_by_adam().init, update)
