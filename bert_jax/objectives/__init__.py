"""Training objectives: one file and one row of the table each.

An objective reads the outputs of the head of its name in `models/heads.py`. It is a frozen
dataclass with
  `count(batch) -> scalar`: what its loss is divided by; it never depends on parameters,
  `loss(outputs, batch) -> {metric: (sum, count)}`, of which `<name>_loss` is trained.
"""

from __future__ import annotations

from collections.abc import Mapping

from bert_jax.config import knobs
from bert_jax.objectives.base import Objective
from bert_jax.objectives.causal_lm import CausalLm
from bert_jax.objectives.choice import Choice
from bert_jax.objectives.classify import Classify
from bert_jax.objectives.mlm import Mlm
from bert_jax.objectives.nsp import Nsp
from bert_jax.objectives.regress import Regress
from bert_jax.objectives.sop import Sop
from bert_jax.objectives.span import Span
from bert_jax.objectives.tag import Tag

TABLE: dict[str, Objective] = {
    "mlm": Mlm(),
    "nsp": Nsp(),
    "sop": Sop(),
    "causal_lm": CausalLm(),
    "classify": Classify("classify"),
    "regress": Regress(),
    "tag": Tag(),
    "span": Span(),
    "choice": Choice(),
}


def of(settings: Mapping[str, knobs.Objective]) -> dict[str, Objective]:
    """Return the objectives of a config, with the config's options."""
    return {
        name: CausalLm(options.end) if name == "causal_lm" else TABLE[name]
        for name, options in settings.items()
    }
