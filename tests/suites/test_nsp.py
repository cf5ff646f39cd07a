"""Suite `nsp` on the pairs of a file: what `predict nsp` says of each."""

from __future__ import annotations

import numpy as np
import pytest

from bert_jax.api import Model
from bert_jax.errors import DataError
from tests.suites.asking import ask, write_pairs


def test_nsp_on_pairs_of_a_file(run, tmp_path, one_device):
    labels = [("is_next", "not_next")[n % 3 == 0] for n in range(13)]
    file, pairs = write_pairs(tmp_path, "label", labels)
    follows = np.array([one["is_next"] for one in Model(run).nsp(pairs, long="cut")])
    right = np.where(np.array(labels) == "is_next", follows, 1 - follows)
    found = ask(run, "nsp", source=f"files:{file}", batch_size=7)
    assert found["nsp_loss"] == pytest.approx(-np.log(right).mean(), rel=1e-5)
    assert (found["examples"], found["nsp_accuracy"]) == (13, pytest.approx(np.mean(right > 0.5)))
    assert found["nsp_accuracy_low"] < found["nsp_accuracy"] < found["nsp_accuracy_high"]
    assert found["majority_accuracy"] == pytest.approx(8 / 13)
    file.write_text(file.read_text().replace("not_next", "random"))
    with pytest.raises(DataError, match=r"label\.tsv:2: label 'random' is not one of: is_next"):
        ask(run, "nsp", source=f"files:{file}")
