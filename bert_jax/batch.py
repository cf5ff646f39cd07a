"""The batch contract: the arrays of a batch, which module writes each key and which reads it.

A batch is a flat dict of arrays: B rows, L tokens a row, S examples a row (1 unless rows are
packed).

  | key           | shape  | dtype | written by | read by                                          |
  |---------------|--------|-------|------------|--------------------------------------------------|
  | tokens        | [B, L] | int32 | pipeline   | masking (truth), encoder if nothing is masked    |
  | type_ids      | [B, L] | int32 | pipeline   | encoder: 0 for segment A, 1 for B, unless        |
  |               |        |       |            | two separators part them: then 0 for both        |
  | positions     | [B, L] | int32 | pipeline   | encoder, masking keys: place in the example      |
  | segment_ids   | [B, L] | int32 | pipeline   | attention, masking: example of the row, from 1   |
  | unit_ids      | [B, L] | int32 | units      | masking: column of the unit's first token, or -1 |
  | example_ids   | [B, S] | int32 | pipeline   | masking keys, messages: index in epoch's plan    |
  | copies        | [B, S] | int32 | pipeline   | masking keys: epoch, or epoch mod dupe_factor    |
  | places        | [B, S] | int32 | pipeline   | masking: place in the epoch's order, mod 2^32    |
  | cls_positions | [B, S] | int32 | pipeline   | pooler                                           |
  | labels        | [B, S] | int32 | pipeline   | pair objectives: 0 true order, -1 not counted    |

Two keys exist only if the masking knobs ask for several views of an example, or for weights:

  | views       | [B, S] | int32   | pipeline | masking: number of the example's view, from 0    |
  | unit_scales | [B, L] | float32 | units    | masking: 1 / a unit's weight, at its first token |

In segment_ids 0 is padding; BERT's two segments are type_ids. A token whose unit_ids is -1 is never
masked. `corrupt_batch` adds these keys, for K prediction slots a row. A slot is room for one
predicted token. K is fixed, and slots that are not used weigh 0.

  | inputs            | [B, L] | int32   | masking  | encoder: tokens after corruption            |
  | predict_positions | [B, K] | int32   | masking  | MLM head: column of each slot               |
  | predict_targets   | [B, K] | int32   | masking  | MLM loss: the true token                    |
  | predict_weights   | [B, K] | float32 | masking  | MLM loss: 1 for a used slot, 0 for a spare  |
  | predict_draws     | [B, K] | uint32  | masking  | replaced: random bits that draw a token     |
  | bound_weights     | [B, K] | float32 | masking  | diffusion: weight of the slot in the bound  |
  | causal            | [B, L] | bool    | hybrid   | attention: tokens that see no later one     |
  | judged            | [B, L] | float32 | replaced | its loss: 1 for a token that is judged      |

Labelled data has no unit_ids, copies and places, but one of these targets, where -1 and NaN are not
counted:

  | labels | [B, 1] | int32   | features | classify: the class; choice: the option            |
  | values | [B, 1] | float32 | features | regress                                            |
  | tags   | [B, L] | int32   | features | tag: the class of a word, at its first piece       |
  | spans  | [B, 2] | int32   | features | span: columns of the answer's first and last token |

`causal_lm` needs only the keys of the pipeline: the target of a token is the next token.

In generation a row is one new token. The encoder keeps the keys and values of P earlier tokens, and
the batch has

  | past_positions | [B, P] | int32 | generate | encoder: positions of kept tokens, or -1 |

A row whose segment_ids are all 0 fills up a batch and is never counted. With S = 1, padding comes
last.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # the data rooms import this module in processes that must not load jax
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
    "places",
    "cls_positions",
    "labels",
)


class Special(NamedTuple):
    """The ids of the special tokens of a vocabulary, by role: `cls` is [CLS], or <s> of RoBERTa."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int

    @property
    def separators(self) -> int:
        """The number of separators between the two texts of a pair."""
        return 1

    def added(self, texts: int) -> int:
        """Count the special tokens that are added to a row of `texts` texts, 1 or 2."""
        return 2 + (texts - 1) * self.separators


class TwoSeparators(Special):
    """RoBERTa's special tokens: a pair is <s> A </s></s> B </s>, and all its type ids are 0."""

    __slots__ = ()

    @property
    def separators(self) -> int:
        """The number of separators between the two texts of a pair."""
        return 2


SPECIAL = Special(pad=0, unk=1, cls=2, sep=3, mask=4)  # where there is no vocabulary


class StepInputs(NamedTuple):
    """The traced numbers of an update; runs that differ only in these share one program."""

    quotas: Any  # `quotas.Quotas`, tokens selected in an example, by its length
    predict_quotas: Any  # `quotas.Quotas`, how many of them are predicted
    replace: Any  # float32 [3], shares of [MASK], random token, kept
    weights: Any  # {objective, or part of its loss: float32}
    learning_rate: Any  # float32, of this step
    weight_decay: Any  # float32
    seed: Any  # uint32, of dropout and masks
    # Instead of both quotas, which are None: a table of rates that examples draw from, and what it
    # selects (`masking/drawn_quotas.py`).
    drawn: Any = None
    share: Any = None  # float32, of objective hybrid: the share of examples that are causal


class Encoded(NamedTuple):
    """The output of the encoder, which every head reads."""

    hidden: "jax.Array"  # [B, L, D]
    pooled: "jax.Array | None"  # [B, S, D], when an objective reads it
    # [V padded, table_width], or copies of it (`sharding.copy_per_device`)
    embedding_table: "jax.Array"
    # [B, L, features x D], the last layers side by side, if model.features is above 1
    features: "jax.Array | None" = None
