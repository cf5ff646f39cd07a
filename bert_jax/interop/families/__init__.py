"""Families of Hugging Face's models: each is a file here, and has a row or two of TABLE.

A model is read as the family of its model_type, and exported as the first family that can express
it, if possible with its pooler.
"""

from collections.abc import Iterable

from bert_jax.errors import ConfigError
from bert_jax.interop.families import bert, distilbert, electra, modernbert, neobert, roberta
from bert_jax.interop.families.base import Family as Family
from bert_jax.interop.families.base import Stated
from bert_jax.system.jsons import show

FAMILIES = (
    bert.FAMILY,
    roberta.FAMILY,
    roberta.PRE_NORM,
    distilbert.FAMILY,
    modernbert.FAMILY,
    electra.FAMILY,
    neobert.FAMILY,
)
TABLE = {family.model_type: family for family in FAMILIES}


def find_family(stated: Stated, tensors: Iterable[str]) -> Family:
    """Return the family that a config.json and the names of tensors belong to.

    A config.json without a model_type is BERT's.
    """
    name = stated.get("model_type") or "bert"
    if not isinstance(name, str) or name not in TABLE:
        raise ConfigError(
            f"model_type = {show(name)}, a kind of model that is not read",
            f"one of: {', '.join(TABLE)}",
        )
    return roberta.PRE_NORM if roberta.is_pre_norm(name, tensors) else TABLE[name]
