"""Sentence order prediction (ALBERT): are the two segments in their true order?"""

from __future__ import annotations

import dataclasses

from bert_jax.objectives.nsp import Nsp


@dataclasses.dataclass(frozen=True)
class Sop(Nsp):
    """The same head and loss as NSP on other pairs: label 1 is swapped."""

    name: str = "sop"
