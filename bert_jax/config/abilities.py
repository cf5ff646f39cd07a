"""Limits of the attention backends, as far as the config decides them, without importing jax."""

from __future__ import annotations

from bert_jax.config import knobs

WIDEST = 128  # width of a head, for cudnn on any GPU
BLOCK = 128  # positions that splash computes at once
HINT = "--config.model.attention=auto takes what can"
DROPOUT = "it cannot drop probabilities: --config.model.attention_dropout=0"


def explain_unfit_model(name: str, m: knobs.Model) -> str:
    """Explain why an attention backend cannot compute a model; "" if it can."""
    width = m.shape[1] // m.shape[2]
    if name == "cudnn" and m.dtype in ("float32", "bfloat16_products"):
        return "it computes in bfloat16: --config.model.dtype=bfloat16"
    if name == "cudnn" and (width % 8 or width > WIDEST):
        return f"heads of width {width}: it takes multiples of 8, up to {WIDEST}"
    if name in ("cudnn", "splash") and m.position == "relative":
        return "it has no scores of distances, as model.position = 'relative' needs"
    if name == "splash" and m.position == "alibi":
        return "it takes no bias, as model.position = 'alibi' needs"
    return ""


def explain_unfit_length(name: str, length: int) -> str:
    """Explain why an attention backend cannot compute rows of this length; "" if it can."""
    if name == "splash" and length % BLOCK:
        return f"rows of {length} tokens: it takes multiples of {BLOCK}"
    if name == "cudnn" and length % 2:
        return f"rows of {length} tokens: it takes even numbers"
    return ""
