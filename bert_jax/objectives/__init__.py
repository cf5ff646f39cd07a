"""What a model is trained on: one file and one row of the table each.

An objective is a frozen dataclass with
  `pooled`: whether its head reads the pooled [CLS] vector,
  `head(cfg, vocab_size, name) -> nn.Module`, called with (Encoded, Batch),
  `count(batch) -> scalar`: what its loss is divided by; it never depends on parameters,
  `loss(outputs, batch) -> {metric: (sum, count)}`, of which `<name>_loss` is trained.
"""

from __future__ import annotations

from bert_jax.objectives.base import Objective
from bert_jax.objectives.mlm import Mlm
from bert_jax.objectives.nsp import Nsp
from bert_jax.objectives.sop import Sop

TABLE: dict[str, Objective] = {"mlm": Mlm(), "nsp": Nsp(), "sop": Sop()}
