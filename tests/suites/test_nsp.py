"""Suite `nsp` on the pairs of a file: what `predict nsp` says of each."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bert_jax.errors import ConfigError, DataError
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model
from bert_jax.predictors.options import Options
from tests.suites.asking import ask, write_pairs


def test_nsp_on_pairs_of_a_file(run, tmp_path, one_device):
    labels = [("is_next", "not_next")[n % 3 == 0] for n in range(13)]
    file, pairs = write_pairs(tmp_path, "label", labels)
    lines = [json.dumps({"text": a, "text_pair": b}) for a, b in pairs]
    said = [one["is_next"] for one in stream.predict(Model(run, Options(long="cut")), "nsp", lines)]
    right = [(p > 0.5) == (label == "is_next") for p, label in zip(said, labels, strict=True)]
    loss = -np.mean(
        [
            math.log(p if label == "is_next" else 1 - p)
            for p, label in zip(said, labels, strict=True)
        ]
    )
    for size in (0, 7):
        found = ask(run, "nsp", source=f"files:{file}", batch_size=size)
        assert found["nsp_loss"] == pytest.approx(loss, rel=1e-5)
        assert (found["examples"], found["nsp_accuracy"]) == (13, pytest.approx(np.mean(right)))
        assert found["nsp_accuracy_low"] < found["nsp_accuracy"] < found["nsp_accuracy_high"]
        assert found["majority_accuracy"] == pytest.approx(8 / 13)
    file.write_text(file.read_text().replace("not_next", "random"))
    with pytest.raises(
        DataError, match=r"label\.tsv:2: label 'random' is not one of: is_next, not_next"
    ):
        ask(run, "nsp", source=f"files:{file}")


@pytest.mark.fault(21)
@pytest.mark.parametrize("option", [{"limit": 3}, {"split": "train"}])
def test_nsp_refuses_options_of_a_file(run, option):
    with pytest.raises(ConfigError, match="means nothing to nsp without a --source"):
        ask(run, "nsp", **option)
