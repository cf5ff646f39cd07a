"""The batch contract: what a batch holds, who writes each key and who reads it.

A batch is a flat dict of arrays. B rows, L tokens a row, S examples a row (1 unless rows are packed).

| key           | shape  | dtype | written by | read by                                                  |
|---------------|--------|-------|------------|----------------------------------------------------------|
| tokens        | [B, L] | int32 | pipeline   | masking (the truth), encoder when nothing is masked      |
| type_ids      | [B, L] | int32 | pipeline   | encoder: 0 for segment A, 1 for segment B                |
| positions     | [B, L] | int32 | pipeline   | encoder, masking keys: position inside the example       |
| segment_ids   | [B, L] | int32 | pipeline   | attention, masking: 0 is padding, examples count from 1  |
| unit_ids      | [B, L] | int32 | units      | masking: row index of the unit's first token, -1 = never |
| example_ids   | [B, S] | int32 | pipeline   | masking keys, error messages: index in the epoch's plan  |
| copies        | [B, S] | int32 | pipeline   | masking keys: the epoch, or epoch mod dupe_factor        |
| cls_positions | [B, S] | int32 | pipeline   | pooler                                                   |
| labels        | [B, S] | int32 | pipeline   | pair objectives: 0 = true order, -1 = not counted        |

`masking.apply` adds, for K prediction slots a row:

| inputs            | [B, L] | int32   | masking | encoder: tokens after corruption             |
| predict_positions | [B, K] | int32   | masking | MLM head: row index of each slot             |
| predict_targets   | [B, K] | int32   | masking | MLM loss: the true token                     |
| predict_weights   | [B, K] | float32 | masking | MLM loss: 1 for a used slot, 0 for a spare one |

Labelled data has no unit_ids and copies, and one of these targets; what is -1 or NaN is not counted:

| labels            | [B, 1] | int32   | features | classify: the class; choice: the option                 |
| values            | [B, 1] | float32 | features | regress                                                 |
| tags              | [B, L] | int32   | features | tag: the class of the word whose first piece this is    |
| spans             | [B, 2] | int32   | features | span: columns of the answer's first and last token      |

`causal_lm` needs no more than the host keys: what follows a token is its target.

Rows of one token more than was read before have, beside what `models/attention.py` kept of that,

| past_positions    | [B, K] | int32   | generate | encoder: of the tokens kept; -1 where there is none     |

A row whose segment_ids are all 0 fills up a batch: nothing in it is ever counted. With S = 1, padding comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # the data side imports this module in processes that must stay small
    import jax

Batch = dict[str, Any]  # arrays: numpy on the host, jax on the device
Metrics = dict[str, tuple[Any, Any]]  # name -> (sum, count); divided once, at the very end

HOST_KEYS = (
    "tokens",
    "type_ids",
    "positions",
    "segment_ids",
    "unit_ids",
    "example_ids",
    "copies",
    "cls_positions",
    "labels",
)


class Special(NamedTuple):
    """Ids of the special tokens of a vocabulary."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class StepInputs(NamedTuple):
    """What an update takes as numbers rather than as code: arms that differ only here share one program."""

    quotas: Any  # int32 [L + 1], tokens selected in an example, by its length
    predict_quotas: Any  # int32 [L + 1], of which predicted
    replace: Any  # float32 [3], shares of [MASK], random token, kept
    weights: Any  # {objective: float32}
    learning_rate: Any  # float32, of this step
    weight_decay: Any  # float32
    seed: Any  # uint32, of dropout and masks
    spike_sigmas: Any = None  # float32, where losses are watched for spikes


class Encoded(NamedTuple):
    """What the encoder returns and every head reads."""

    hidden: jax.Array  # [B, L, D]
    pooled: jax.Array | None  # [B, S, D], when an objective reads it
    embedding_table: jax.Array  # [V padded, D]
    layers: jax.Array | None = (
        None  # [layers + 1, B, L, D], when captured; with pre-norm before the final one
    )
    attention: jax.Array | None = None  # [layers, B, heads, L, L], when captured
    features: jax.Array | None = (
        None  # [B, L, features x D], the last layers side by side, when captured
    )
