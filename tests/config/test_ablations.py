"""configs/ablations.py: names, arguments and sizes. Resolved values are frozen in tests/net."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest

from bert_jax.config import load_file, resolve
from bert_jax.errors import ConfigError
from tests.net import config_rows

FILE = Path(__file__).resolve().parents[2] / "configs" / "ablations.py"
ABLATIONS = runpy.run_path(str(FILE))["ABLATIONS"]


def load(arguments: str):
    return resolve(load_file(f"{FILE}:{arguments}"))


def test_every_ablation_is_frozen_by_the_net():
    assert sorted(ABLATIONS) == sorted(config_rows.ABLATIONS)


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablation_takes_defaults_numbers_and_a_size(name):
    parameters = [*inspect.signature(ABLATIONS[name]).parameters.values()][1:]
    written = ",".join([name, *(p.default for p in parameters), "base"])
    assert load(name) == load(written)
    assert load(f"{name},tiny").model.hidden == 128


def test_ablation_sets_the_numbers_that_it_is_given():
    assert load("masking_rate,0.25,mini").masking.rate == 0.25
    assert load("views,0.1,0.5").masking.prediction_rate == 0.5
    assert load("weighted_masks,-1").masking.weights_power == -1
    assert load("hybrid,0.25").objectives["hybrid"].share == 0.25


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        ("maskin_rate,0.2", "no ablation 'maskin_rate'", "did you mean 'masking_rate'? one of: "),
        ("", "configs/ablations.py:NAME has no name", "one of: masking_rate, "),
        ("no_nsp,smal", "ablation no_nsp: 'smal' is no size", "did you mean 'small'? "),
        ("views,0.1,0.4,base,3", "ablation views: '3' is no size", "one of: tiny, "),
        ("masking_rate,x", "config.masking.rate must be float, got 'x'", "write a finite number"),
        ("drawn_rate,unifrm", "masking.draw = 'unifrm' is not a choice", "did you mean 'uniform'?"),
    ],
)
def test_ablation_refuses_what_it_does_not_know(arguments, said, hint):
    with pytest.raises(ConfigError) as caught:
        load(arguments)
    assert said in str(caught.value)
    assert caught.value.hint.startswith(hint)
