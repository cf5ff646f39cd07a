"""Sentence order prediction (ALBERT): predict whether two segments are in their true order."""

from __future__ import annotations

import dataclasses

from bert_jax.objectives.nsp import Nsp


@dataclasses.dataclass(frozen=True)
class Sop(Nsp):
    """NSP's head and loss on pairs in which label 1 means that A and B are swapped."""

    name: str = "sop"


OBJECTIVE = Sop()
