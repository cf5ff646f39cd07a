"""Find the knobs by which two models with equal parameters would compute different outputs."""

import dataclasses
from typing import Any

from bert_jax.config import conditions, knobs

FREE = {  # knobs of the model that do not change what a trained model computes
    *("size", "vocab_multiple", "max_positions", "attention", "attention_bias", "scan", "remat"),
    *("dtype", "dropout", "attention_dropout", "classifier_dropout", "init", "init_stddev"),
}
FOLLOW = {  # knob -> the knob whose value it has if it is None
    "mlp_biases": "biases",
    "pooler_bias": "biases",
    "head_activation": "activation",
    "rotary_base_near": "rotary_base",
}


def list_different_knobs(config: knobs.Config, other: knobs.Model) -> dict[str, Any]:
    """Return {knob: value} of the config's knobs whose values differ in another model.

    A knob that does nothing in both models is left out.
    """
    ours, theirs = _complete(config.model), _complete(other)
    return {
        name: value
        for name, value in ours.items()
        if value != theirs[name] and _acts(name, config, other)
    }


def _complete(model: knobs.Model) -> dict[str, Any]:
    """Return {knob: value} of the knobs that decide a model's outputs.

    Values that depend on other knobs are filled in.
    """
    assert model.layers is not None
    values = {name: value for name, value in vars(model).items() if name not in FREE}
    values["embedding"] = model.table_width
    values["global_every"] = min(model.global_every, model.layers)
    for name, source in FOLLOW.items():
        if values[name] is None:
            values[name] = values[source]
    return values


def _acts(name: str, config: knobs.Config, other: knobs.Model) -> bool:
    """Tell whether a knob of the model does anything in the config, as it is or with `other`."""
    again = dataclasses.replace(config, model=other)
    listed = conditions.list_conditions(f"model.{name}")
    return any(all(one.holds(c, "") for one in listed) for c in (config, again))
