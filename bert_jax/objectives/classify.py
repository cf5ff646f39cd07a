"""Classification of a text or a pair: predict its label."""

from __future__ import annotations

from bert_jax.objectives.nsp import Nsp


class Classify(Nsp):
    """NSP's cross-entropy over the labels of a task; a label of -1 is not counted."""

    name = "classify"
    outputs, dropout = 0, True


OBJECTIVE = Classify()
