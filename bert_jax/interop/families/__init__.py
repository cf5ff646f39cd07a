"""Families of Hugging Face's models that ours can be: a file here and a row or two of TABLE each.

A row says which classes a family has, how its config.json states our knobs, what its tensors are
called, and which of our models it cannot express. A model is read as the family of its model_type,
and exported as the first that can express it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.interop.families import bert, distilbert, electra, modernbert, neobert, roberta
from bert_jax.interop.families.base import Family as Family
from bert_jax.system.jsons import show

TABLE: dict[str, Family] = {
    family.model_type: family
    for family in (
        bert.FAMILY,
        roberta.FAMILY,
        roberta.PRE_NORM,
        distilbert.FAMILY,
        modernbert.FAMILY,
        electra.FAMILY,
        neobert.FAMILY,
    )
}


def of(stated: dict[str, Any], names: Iterable[str]) -> Family:
    """Return the family of a config.json, whose tensors have these names; BERT's states none."""
    name = stated.get("model_type", "bert")
    if name is None:
        name = "bert"
    if not isinstance(name, str) or name not in TABLE:
        raise ConfigError(
            f"model_type = {show(name)}, a kind of model that is not read",
            f"one of: {', '.join(TABLE)}",
        )
    return roberta.PRE_NORM if roberta.is_pre_norm(name, names) else TABLE[name]
