"""Replaced token detection: tell for each token whether it is the original, as ELECTRA does.

Tokens are replaced by the random tokens of `masking.replace`, or by a generator (Clark et al.,
2020). The generator is a narrower encoder over the same embeddings (`Config.generator`), which
`mlm` trains. The generator fills the prediction slots with tokens drawn from its softmax. A drawn
token that equals the original counts as an original. No gradient passes through the draw. Tokens
that still are [MASK] are not judged.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.batch import Batch, Encoded, Metrics, StepInputs
from bert_jax.config import devices, knobs
from bert_jax.masking.corrupt import corrupt_batch
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MlmHead
from bert_jax.models.layers import ACTIVATIONS, Dense
from bert_jax.objectives.base import Objective, Targets

BLOCK = 128  # tokens of the vocabulary whose probabilities are summed before any is looked at
MEASURES = ("loss", "accuracy", "precision", "recall", "fraction")


class Detected(NamedTuple):
    """The logits of the head of `replaced`, and which tokens are really replaced."""

    logits: jax.Array  # float32 [B, L], of a token not being the original
    replaced: jax.Array  # bool [B, L], whether it is not


class Head(nn.Module):
    """The head: a dense layer, an activation, and one output for each token."""

    cfg: knobs.Model

    @nn.compact
    def __call__(self, encoded: Encoded, batch: Batch) -> Detected:
        cfg = self.cfg
        tokens = batch["tokens"]
        width = encoded.hidden.shape[-1]
        x = ACTIVATIONS[cfg.activation](Dense(cfg, (width,), name="dense")(encoded.hidden))
        exact = dataclasses.replace(cfg, dtype="float32")
        logits = Dense(exact, (1,), name="logits")(x)[..., 0]
        return Detected(logits, batch.get("inputs", tokens) != tokens)


def make_detector(
    cfg: knobs.Model, vocab_size: int, labels: int, train: bool, name: str
) -> nn.Module:
    """Make the head with one logit for each token."""
    return Head(cfg, name=name)


def judge_all(batch: Batch) -> Targets:
    """Return the original tokens [B, L], and a weight of 1 for each token that is judged."""
    return batch["tokens"], batch["judged"]


@dataclasses.dataclass(frozen=True)
class Replaced(Objective):
    """Binary cross-entropy over all judged tokens: whether a token is replaced or the original."""

    generator: float = 0.0

    def configure(self, options: knobs.Objective) -> Objective:
        """Return a copy of the objective with the generator option of a config."""
        return dataclasses.replace(self, generator=options.generator)

    def corrupt(self, batch: Batch, step_inputs: StepInputs, **rules: Any) -> tuple[Batch, Metrics]:
        """Mask a batch by `corrupt_batch`; add `judged`, and for a generator `predict_draws`."""
        drawn = bool(self.generator)
        masked, ledger = corrupt_batch(batch, step_inputs, token_draws=drawn, **rules)
        judged = batch["segment_ids"] > 0
        # A generator fills every [MASK]. Without one, [MASK] may remain, and gives itself away.
        if not drawn:
            judged &= masked["inputs"] != rules["special"].mask
        return {**masked, "judged": judged.astype(jnp.float32)}, ledger

    def loss(self, outputs: Detected, batch: Batch) -> Metrics:
        """Return {metric: (sum, count)}: loss, accuracy, precision, recall, and replaced tokens."""
        logits, replaced = outputs
        judged = batch["judged"]
        # softplus(-x) is -log sigmoid(x), and softplus(x) is -log(1 - sigmoid(x)): [B, L].
        losses = jax.nn.softplus(jnp.where(replaced, -logits, logits))
        answer = logits > 0
        total = jnp.sum(judged)
        yes = jnp.sum(judged * answer)
        true = jnp.sum(judged * replaced)
        found = jnp.sum(judged * (answer & replaced))
        return {
            "replaced_loss": (jnp.sum(losses * judged), total),
            "replaced_accuracy": (jnp.sum(judged * (answer == replaced)), total),
            "replaced_precision": (found, yes),
            "replaced_recall": (found, true),
            "replaced_fraction": (true, total),
        }


def compute_baselines(fraction: float) -> dict[str, float]:
    """Return {metric: value} of guesses that know only the share of replaced tokens."""
    shares = (fraction, 1 - fraction)
    return {
        "replaced_majority_accuracy": max(shares),
        # The entropy -p log p - (1 - p) log(1 - p) is the mean loss of always answering p.
        "replaced_base_rate_loss": -sum(share * math.log(share) for share in shares if share > 0),
    }


# --- the generator --------------------------------------------------------------------------------


def run_generator(
    cfg: knobs.Model, vocab_size: int, train: bool, embedded: Encoded, batch: Batch
) -> tuple[jax.Array, Batch]:
    """Run the generator on a masked batch, and put its tokens into the batch.

    The generator is an encoder over the embeddings of the main encoder, with an MLM head. The
    generator's parameters become part of the calling module. If the batch has no `predict_draws`,
    because only the generator is evaluated, the batch is returned as it is.

    Returns:
      The logits of the prediction slots, and the batch.
    """
    encoded = Encoder(cfg, vocab_size, train, pool=False, name="generator")(batch, embedded)
    head = MlmHead(devices.fill_machine_knobs(cfg, train=train), vocab_size, name="mlm")
    logits = head(encoded, batch)
    return logits, fill_slots(batch, logits) if "predict_draws" in batch else batch


def fill_slots(batch: Batch, logits: jax.Array) -> Batch:
    """Replace the tokens at the prediction slots by tokens drawn from `logits` [B, K, V]."""
    # Only the MLM loss trains the generator, as in ELECTRA: it does not learn to deceive.
    tokens = draw_tokens(jax.lax.stop_gradient(logits), batch["predict_draws"])
    rows = jnp.arange(len(tokens), dtype=jnp.int32)[:, None]
    inputs = jnp.asarray(batch["inputs"])
    # A spare slot lies beyond the row, and what is written there is dropped.
    slots = jnp.where(batch["predict_weights"] > 0, batch["predict_positions"], inputs.shape[1])
    # Used slots [[3, 5]] of row 0 write inputs[0, 3] and inputs[0, 5].
    return {**batch, "inputs": inputs.at[rows, slots].set(tokens, mode="drop")}


def draw_tokens(logits: jax.Array, words: jax.Array) -> jax.Array:
    """Draw a token [B, K] from the softmax of the logits of each prediction slot.

    The token is the one at which the cumulative probability passes the random number. The
    cumulative sum runs over the sums of blocks of the vocabulary, and then over the tokens of one
    block. So both cumulative sums are short.

    Args:
      logits: the logits of the vocabulary [B, K, V].
      words: the random numbers times 2**32, uint32 [B, K].
    """
    size = logits.shape[-1]
    # The softmax up to a factor: the random number is multiplied by the total instead.
    chances = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    # The padding has chance 0: of V = 300, it is 84 columns, for N = 3 blocks.
    chances = jnp.pad(chances, ((0, 0), (0, 0), (0, -size % BLOCK)))
    blocks = chances.reshape(*words.shape, -1, BLOCK)  # [B, K, N, BLOCK]
    sums = jnp.sum(blocks, axis=-1)
    ends = jnp.cumsum(sums, axis=-1)  # [B, K, N]
    # Of 23 bits, so that the product is below the last end, however it is rounded.
    at = (words >> 9).astype(jnp.float32) * 2.0**-23 * ends[..., -1]  # [B, K]
    # With ends [0.5, 2, 3] and at = 1.2, block is 1 and begins is 0.5: inside block 1, 0.7 is left.
    block = _find_first_beyond(ends, at)
    before = jnp.take_along_axis(ends, jnp.maximum(block - 1, 0)[..., None], axis=-1)[..., 0]
    begins = jnp.where(block > 0, before, 0.0)
    own = jnp.take_along_axis(blocks, block[..., None, None], axis=2)[..., 0, :]  # [B, K, BLOCK]
    token = block * BLOCK + _find_first_beyond(jnp.cumsum(own, axis=-1), at - begins)
    # The sums of a block and of its tokens are rounded differently: the token could be padding.
    return jnp.minimum(token, size - 1)


def _find_first_beyond(ends: jax.Array, at: jax.Array) -> jax.Array:
    """Return the index of the first of `ends` above `at`, or the last index if none is above."""
    # Ends [0.5, 2, 3] and at = 1.2 give 1, as one end is not above.
    index = jnp.sum(ends <= at[..., None], axis=-1, dtype=jnp.int32)
    return jnp.minimum(index, ends.shape[-1] - 1)
