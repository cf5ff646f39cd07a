"""A study that states a true, a reversed and a null claim."""

from __future__ import annotations

import dataclasses

from bert_jax.studies.definition import Claimed, Comparison, Suite
from tests.study_workdir import masking_rate

LOSS = "validation/mlm_loss"
# By `study_workdir.truth`: 20 % beats 80 % by 0.1 nats and more, and 15 % hardly differs.
TRUE = Claimed("C1", "masking.rate", "20 %", "80 %", LOSS, effect=0.05)
REVERSED = dataclasses.replace(TRUE, claim="C3", point="80 %", baseline="20 %")
NULL = dataclasses.replace(TRUE, claim="C16", baseline="15 %", within=0.15)


def study(**changes):
    settings = {"rates": (0.15, 0.2, 0.8), "claims": (TRUE, REVERSED, NULL), "seeds": (0, 1, 2, 3)}
    settings |= {"comparisons": (Comparison("masking.rate", "15 %", (LOSS,)),)}
    return masking_rate(**{**settings, "evaluations": {"validation": Suite("pretrain")}, **changes})
