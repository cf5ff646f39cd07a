"""The attention mask of a batch: which token attends to which, and the bias of the scores."""

import flax.struct
import jax.numpy as jnp
from jax import Array

from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.models.positions import penalise_distance


@flax.struct.dataclass
class AttentionMask:
    """The attention mask of L tokens over M keys; M is L, except in generation.

    Each attention backend reads some of the arrays. The compiler removes the arrays that are not
    read.
    """

    segment_ids: Array  # int32 [B, L]
    positions: Array  # int32 [B, L]
    distance: Array  # int32 [B, L, M], position of the token less position of the key
    allowed: Array  # bool [B, 1, L, M], whether the token sees the key
    window: int = flax.struct.field(pytree_node=False)  # of the layer; 0 is none
    bias: Array | None = None  # float32 [B, heads, L, M], added to the scores
    lengths: Array | None = None  # int32 [B], if every row is one example and then padding
    relative_vectors: Array | None = None  # [buckets, D], of distances between tokens


def find_window(cfg: knobs.Model, layer: int) -> int:
    """Return the distance up to which tokens of a layer attend; 0 means no limit."""
    # With global_every = 3, as in ModernBERT, layers 0, 3, 6, ... have no limit.
    sees_all = cfg.global_every and layer % cfg.global_every == 0
    return 0 if sees_all else cfg.window


def make_attention_mask(
    batch: Batch, cfg: knobs.Model, window: int = 0, relative_vectors: Array | None = None
) -> AttentionMask:
    """Make the attention mask of the layers with this `window` (0: no limit).

    A token attends to the tokens of the same example up to the distance `window`. A causal token
    attends to no token after itself. Padding attends to every token, and no token attends to
    padding. In generation a row is one new token, and its keys are the earlier tokens and itself.
    """
    ids = batch["segment_ids"]
    positions = batch["positions"]
    key_ids = ids  # [B, M], once the kept tokens are put before them
    key_positions = positions
    if "past_positions" in batch:
        past = batch["past_positions"]  # -1 where nothing is kept
        # In generation a row has one text, so the kept tokens are of example 1, as the new one is.
        key_ids = jnp.concatenate([(past >= 0).astype(ids.dtype), ids], axis=1)
        key_positions = jnp.concatenate([past, positions], axis=1)
    queries = ids[:, None, :, None]  # [B, 1, L, 1]
    keys = key_ids[:, None, None, :]  # [B, 1, 1, M]
    # With ids [1 1 2 0], token 0 sees keys 0 and 1, token 2 sees key 2, and padding sees 0 to 2.
    allowed = (keys != 0) & ((queries == keys) | (queries == 0))  # [B, 1, L, M]
    # Positions begin anew in each example. The distances between examples mean nothing, but
    # `allowed` has forbidden these pairs already.
    distance = positions[:, :, None] - key_positions[:, None, :]  # [B, L, M]
    if "causal" in batch:  # bool [B, L]
        allowed &= (distance >= 0)[:, None] | ~batch["causal"][:, None, :, None]
    elif cfg.causal:
        allowed &= (distance >= 0)[:, None]
    if window:
        allowed &= (jnp.abs(distance) <= window)[:, None]
    bias = lengths = None
    if cfg.position == "alibi":
        assert cfg.heads is not None
        bias = penalise_distance(distance, cfg.heads)
    single = "cls_positions" in batch and batch["cls_positions"].shape[1] == 1
    if single and "causal" not in batch:
        lengths = jnp.sum((ids > 0).astype(jnp.int32), -1)
    return AttentionMask(ids, positions, distance, allowed, window, bias, lengths, relative_vectors)
