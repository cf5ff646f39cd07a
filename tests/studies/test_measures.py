"""The evaluations of a study: which cells have them, and data that is missing."""

import pytest

from bert_jax.errors import ConfigError, DataError, MissingError
from bert_jax.studies import actions
from bert_jax.studies.definition import (
    Finetune,
    Suite,
)
from tests.studies.small import make_base, make_study

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
