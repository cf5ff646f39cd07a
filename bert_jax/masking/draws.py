"""Random bits for masking: pure functions of the seed and of an example or a token.

A word of 32 bits is a hash of (seed, copy, example, position), with no state. So a mask is the same
in any batch, on any device and after any resume. The generator is always threefry, whose bits vmap
does not change.
"""

import jax
import jax.numpy as jnp

from bert_jax.batch import Batch

NO_EXAMPLE = 0xFFFFFFFF  # beyond the numbers of examples: what is drawn for a whole copy
NO_TOKEN = 0xFFFFFFFF  # beyond the positions of tokens: what is drawn for a whole example
GOLDEN = 0x9E3779B9  # of 2**32, the golden ratio: its multiples are spread evenly in every window


def draw_token_bits(batch: Batch, seed: jax.Array) -> tuple[jax.Array, ...]:
    """Draw four independent random words of 32 bits for each token, uint32 [B, L] each."""

    def draw_for_token(key: jax.Array, position: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(key, impl="threefry2x32")
        return jax.random.bits(jax.random.fold_in(key, position), (4,))

    # Each token takes the key of its example: [B, S, 2] by [B, L, 1] is [B, L, 2].
    example = jnp.maximum(batch["segment_ids"] - 1, 0)[..., None]
    keys = jnp.take_along_axis(_make_keys(batch, seed), example, 1)
    words = jax.vmap(jax.vmap(draw_for_token))(keys, batch["positions"])  # [B, L, 4]
    return words[..., 0], words[..., 1], words[..., 2], words[..., 3]


def draw_roundings(batch: Batch, seed: jax.Array) -> jax.Array:
    """Draw 32 random bits for each example, which round its quota at every rate, uint32 [B, S]."""

    def draw_for_example(key: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(key, impl="threefry2x32")
        return jax.random.bits(jax.random.fold_in(key, NO_TOKEN))

    return jax.vmap(jax.vmap(draw_for_example))(_make_keys(batch, seed))


def draw_u(
    batch: Batch, seed: jax.Array, spread: int = GOLDEN, which: int = NO_EXAMPLE
) -> jax.Array:
    """Return the number u by which each example draws its rate, times 2**32, uint32 [B, S].

    The u of consecutive examples of an epoch differ by `spread`, modulo 2**32. So every window of
    the stream has nearly its share of each rate. A second, independent draw needs another `spread`
    and another `which`, a number that goes into the random key.
    """
    shifts = jax.vmap(jax.vmap(lambda copy: draw_shift(seed, copy, which)))(batch["copies"])
    return batch["places"].astype(jnp.uint32) * jnp.uint32(spread) + shifts


def draw_shift(seed: jax.Array, copy: jax.Array, which: int = NO_EXAMPLE) -> jax.Array:
    """Draw the u of the first example of a copy, times 2**32."""
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.random.bits(jax.random.fold_in(jax.random.fold_in(root, copy), which))


def _make_keys(batch: Batch, seed: jax.Array) -> jax.Array:
    """Make a random key for each example from its seed, copy and number, uint32 [B, S, 2]."""
    root = jax.random.key(seed, impl="threefry2x32")

    def make_key(copy: jax.Array, example: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(root, copy), example))

    return jax.vmap(jax.vmap(make_key))(batch["copies"], batch["example_ids"])
