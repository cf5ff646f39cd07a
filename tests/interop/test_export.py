"""Which family a model is exported as, and what is refused."""

import dataclasses

import pytest

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop import export, families
from tests import tiny
from tests.families import EXPRESSED, MLM

INEXPRESSIBLE = {
    "model.position = relative": MLM | {"model__position": "relative"},
    "model.norm = pre": {"model__norm": "pre"},
    "model.gated = True": {"model__gated": "true"},
    "model.window = 64": {"model__window": "64"},
    "model.first_position = 2": EXPRESSED["roberta"] | {"model__first_position": 2},
    "model.head_activation = relu": EXPRESSED["roberta"] | {"model__head_activation": "relu"},
    "model.causal = True, of a text": {"model__causal": "true"},
    "model.global_every = 0": EXPRESSED["modernbert"] | {"model__global_every": 0},
    "model.layer_weights = True": EXPRESSED["modernbert"] | {"model__layer_weights": "true"},
    "model.biases = False": MLM | {"model__biases": "false"},
    "model.pooler_bias = False": {"pairs": "nsp", "model__pooler_bias": "false"},
    "model.embedding = 24": EXPRESSED["distilbert"] | {"model__embedding": 24},
    "model.rotary_base = 500": EXPRESSED["neobert"] | {"model__rotary_base": 500},
    "model.mlp = 44": EXPRESSED["neobert"] | {"model__mlp": 44},
    "objectives.sop = no head": {"pairs": "sop", "checkpoints__best": "mlm_loss"},
}


@pytest.mark.parametrize("name", EXPRESSED)
def test_find_family_takes_the_first_that_fits(name):
    config = tiny.config(**EXPRESSED[name])
    assert export.find_family(config, tiny.SPECIAL).model_type == name
    fitting = [
        family.model_type
        for family in families.FAMILIES
        if not export.list_differences(config, tiny.SPECIAL, family)
    ]
    assert fitting == [name, *(["electra"] if name == "bert" else [])]


@pytest.mark.parametrize("said", INEXPRESSIBLE)
def test_find_family_refuses_by_the_knobs_that_differ(said):
    with pytest.raises(ConfigError, match=f"cannot express .*{said}"):
        export.find_family(tiny.config(**INEXPRESSIBLE[said]), tiny.SPECIAL)


@pytest.mark.parametrize(
    ("name", "idle"),
    [
        ("bert", MLM | {"model__pooler": "relu", "model__rotary_base": 500}),
        ("bert", MLM | {"model__dropout": 0.2, "model__vocab_multiple": 8}),  # of training
        ("modernbert", EXPRESSED["modernbert"] | {"model__global_every": 9}),  # of fewer layers
        ("electra", MLM | {"model__pooler": "gelu"}),  # a generator as wide as its layers
    ],
)
def test_find_family_passes_over_idle_knobs(name, idle):
    """A pooler that no head reads still tells two families apart."""
    assert export.find_family(tiny.config(**idle), tiny.SPECIAL).model_type == name


def test_find_family_refuses_heads_with_one_name():
    config = tiny.config(**EXPRESSED["modernbert"], model__pooler="transform")
    both = {name: knobs.Objective(1.0) for name in ("mlm", "span")}
    with pytest.raises(ConfigError, match="mlm and span, which share one name there"):
        export.find_family(dataclasses.replace(config, objectives=both), tiny.SPECIAL)
