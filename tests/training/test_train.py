"""The loop end to end, in this process: what it writes and refuses."""

import json

import jax
import numpy as np
import pytest

from bert_jax import train
from bert_jax.config import resolve
from bert_jax.errors import DivergedError
from bert_jax.masking import quotas
from tests import outcomes
from tests.texts import configure

LOGGED = """loss mlm_loss nsp_loss mlm_accuracy nsp_accuracy masked_fraction mask_token_fraction
    random_fraction kept_fraction learning_rate grad_norm tokens_per_second data_wait
    model_flops_per_second evaluation_seconds saving_seconds host_memory_bytes"""


def test_train_writes_what_the_contract_names(base, tmp_path, one_device):
    """It is evaluated and saved at 10, 20 and 30."""
    train.run(configure(base), tmp_path, command=["bert-jax", "train"])
    lines = outcomes.read_lines(tmp_path)
    updates = [line for line in lines if "train/loss" in line]
    assert [line["step"] for line in updates] == [5, 10, 15, 20, 25, 30]
    assert {f"train/{name}" for name in LOGGED.split()} <= updates[-1].keys()
    evaluations = [line for line in lines if "eval/validation/mlm_loss" in line]
    losses = {line["step"]: line["eval/validation/mlm_loss"] for line in evaluations}
    assert [*losses] == [10, 20, 30]
    for name in ("nsp_accuracy", "unigram_loss", "majority_accuracy"):
        assert f"eval/validation/{name}" in evaluations[-1]
    for file in ("report.html", "tokenizer/vocab.txt", "tokenizer/tokenizer.json"):
        assert (tmp_path / file).stat().st_size > 0, file
    assert resolve(json.loads((tmp_path / "config.json").read_text())).steps == 30
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["versions"]["jax"] == jax.__version__
    assert environment["command"] == ["bert-jax", "train"]
    steps = {int(path.name) for path in (tmp_path / "checkpoints").iterdir()}
    assert steps == {20, 30, min(losses, key=losses.get)}


def test_train_stops_at_masks_that_are_not_asked_for(base, tmp_path, monkeypatch, one_device):
    real = quotas.mean_quotas
    monkeypatch.setattr(quotas, "mean_quotas", lambda *args: np.minimum(real(*args), 2))
    # What other tests counted, or are to count, does not come from these quotas.
    for name in ("count_slots", "selection_quotas", "prediction_quotas"):
        monkeypatch.setattr(quotas, name, getattr(quotas, name).__wrapped__)
    with pytest.raises(DivergedError, match="realised masks"):
        train.run(configure(base, masking__rate=0.4), tmp_path, command=[])
