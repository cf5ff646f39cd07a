"""A source of texts small enough to enumerate: its probabilities, entropy and conditionals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from tests import tiny

SYMBOLS, LENGTH = 3, 6
START = np.array([0.6, 0.3, 0.1])
MOVES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.4, 0.1, 0.5]])
TEXTS = np.array(list(itertools.product(range(SYMBOLS), repeat=LENGTH)))  # [729, 6]
ONE_HOT = np.eye(SYMBOLS, dtype=np.float32)[TEXTS]  # [729, 6, 3]
CHANCES = START[TEXTS[:, 0]] * np.prod(MOVES[TEXTS[:, :-1], TEXTS[:, 1:]], axis=1)
ENTROPY = -(CHANCES * np.log(CHANCES)).sum() / LENGTH
FIRST = len(tiny.SPECIAL)  # the token of symbol 0


def rows(texts: np.ndarray) -> np.ndarray:
    """Texts [N, 6] as rows of tokens, with [CLS] and [SEP]."""
    ends = (np.full((len(texts), 1), i) for i in (tiny.SPECIAL.cls, tiny.SPECIAL.sep))
    return np.concatenate([next(ends), texts + FIRST, next(ends)], axis=1).astype(np.int32)


def conditionals(text: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """The probabilities of the symbols in each place, [6, 3], given those that are not masked."""
    fits = (TEXTS[:, ~masked] == text[~masked]).all(1)
    return np.einsum("t,tis->is", CHANCES * fits, ONE_HOT) / CHANCES[fits].sum()


def logits_of(tokens: jax.Array, places: jax.Array) -> jax.Array:
    """The same as a network would say it: logits [B, K, V] at columns of rows with [MASK]."""
    symbols = tokens[:, 1:-1] - FIRST  # [B, 6], below 0 where masked
    fitting = jnp.where((symbols < 0)[..., None], 1.0, jax.nn.one_hot(symbols, SYMBOLS))
    fits = jnp.einsum("bis,tis->bt", fitting, ONE_HOT) == LENGTH
    weights = fits * jnp.asarray(CHANCES, jnp.float32)[None]
    each = jnp.einsum("bt,tis->bis", weights, ONE_HOT)
    known = jnp.take_along_axis(each, places[..., None] - 1, axis=1)
    logits = jnp.full((*places.shape, tiny.VOCAB), -jnp.inf)
    return logits.at[..., FIRST : FIRST + SYMBOLS].set(jnp.log(known))
