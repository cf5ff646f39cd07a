"""Suite `sts`: the pooling that a model names. The net holds the correlations."""

import dataclasses

from tests.net import inputs
from tests.suites.asking import ask
from tests.texts import ROOT


def test_sts_takes_the_pooling_that_a_model_names(run, tmp_path, one_device):
    inputs.write_inputs(tmp_path, ROOT)
    told = dataclasses.replace(run, meta={"sentence": {"pooling": "cls"}})
    found = ask(told, "sts", source=f"files:{tmp_path / 'tasks'}", batch_size=7)
    assert found["own"] == found["cls"] != found["mean"]
