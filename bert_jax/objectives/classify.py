"""Classification of a text or a pair: which of the labels?"""

from __future__ import annotations

from bert_jax.objectives.nsp import Nsp


class Classify(Nsp):
    """The loss of NSP over the labels of a task; -1 is not counted."""
