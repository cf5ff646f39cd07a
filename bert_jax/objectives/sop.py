"""Sentence order prediction (ALBERT): predict whether two segments are in their true order."""

from __future__ import annotations

from bert_jax.objectives.nsp import Nsp


class Sop(Nsp):
    """NSP's head and loss on pairs in which label 1 means that A and B are swapped."""

    name = "sop"


OBJECTIVE = Sop()
