"""The evaluations of a study: which cells have them, and data that is missing."""

from __future__ import annotations

import pytest

from bert_jax.errors import ConfigError, DataError, MissingError
from bert_jax.studies import actions, measures
from bert_jax.studies.definition import (
    Budget,
    Finetune,
    Suite,
    expand,
    variants,
)
from tests.studies.small import make_base, make_study


def test_cell_has_evaluations_of_its_head_and_budget():
    """A left-to-right model has no head for cross_rate; some evaluations are of some budgets."""
    none = {"objectives.nsp.weight": None, "pairs": "none"}
    masked = none | {"objectives.mlm.weight": 1.0}
    causal = none | {"objectives.mlm.weight": None, "objectives.causal_lm.weight": 1.0}
    causal["model.causal"] = True
    late = Suite("blimp", (("source", "files:pairs"),), budgets=(20,))
    study = make_study(
        base=make_base(checkpoints__best=""),
        axes=(variants("way", {"both": masked, "left": causal}),),
        seeds=(0,),
        budget=Budget("steps", (10, 20)),
        evaluations={"bound": Suite("nelbo"), "rates": Suite("cross_rate"), "late": late},
    )
    cells = expand(study)
    assert [[*cell.evaluations] for cell in cells] == [
        ["bound", "rates"],
        ["bound", "rates", "late"],
        ["bound"],
        ["bound", "late"],
    ]
    lines = measures.describe_left_out(cells, measures.record_evaluations(study))
    assert [line.partition(" is")[0] for line in lines] == ["rates", "late"]


GONE = "files:/nowhere"


@pytest.mark.parametrize(
    ("base", "evaluation", "error"),
    [
        ({"corpus__source": "files", "corpus__path": "/nowhere"}, Suite("pretrain"), DataError),
        ({"tokenizer__path": "/nowhere"}, Suite("pretrain"), ConfigError),
        ({}, Suite("blimp", (("source", GONE),)), DataError),
        ({}, Finetune("sst2", (("task.source", GONE),)), MissingError),
    ],
)
def test_launch_refuses_missing_data(base, evaluation, error, tmp_path):
    study = make_study(base=make_base(**base), evaluations={"one": evaluation})
    named = actions.Named(study, "x", "x", tmp_path)
    for dry_run in (True, False):
        with pytest.raises(error, match="/nowhere"):
            actions.launch_study(named, tmp_path / "w", actions.Flags(dry_run=dry_run))
    assert not (tmp_path / "w").exists()
