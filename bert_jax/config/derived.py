"""The values of a config that follow from other knobs."""

from __future__ import annotations

import dataclasses

from bert_jax.config import validation
from bert_jax.config.conditions import masks_text
from bert_jax.config.knobs import OBJECTIVES, SIZES, Config, Masking, Model, Objective
from bert_jax.errors import ConfigError, suggest

OF_TOKENS = ("causal_lm", "diffusion", "hybrid")  # each of them takes the place of mlm


def derive(c: Config) -> Config:
    """Fill in the values that follow from other knobs, then check the knobs against one another."""
    model = _derive_model(c.model)
    if "hybrid" in c.objectives and model.attention == "auto":
        model = dataclasses.replace(model, attention="einsum")  # causal or not by example
    optim = c.optim
    if optim.warmup_fraction is not None:
        warmup = int(c.steps * optim.warmup_fraction + 1e-9)
        optim = dataclasses.replace(optim, warmup_steps=warmup)
    trackers = tuple(dict.fromkeys(c.logging.trackers))
    logging = dataclasses.replace(c.logging, trackers=trackers)
    derived = dataclasses.replace(
        c, model=model, objectives=_derive_objectives(c), optim=optim, logging=logging
    )
    if not masks_text(derived):  # the same run, whatever the base of a study has
        masking = dataclasses.replace(c.masking, rounding=Masking().rounding)
        derived = dataclasses.replace(derived, masking=masking)
    validation.check(derived)
    return derived


def _derive_model(m: Model) -> Model:
    """Return a model whose shape, head activation and classifier dropout are filled in."""
    layers, hidden, heads = SIZES[m.size]
    hidden = m.hidden or hidden
    dropout = m.dropout if m.classifier_dropout is None else m.classifier_dropout
    return dataclasses.replace(
        m,
        layers=m.layers or layers,
        hidden=hidden,
        heads=m.heads or heads,
        mlp=m.mlp or 4 * hidden,
        head_activation=m.head_activation or m.activation,
        classifier_dropout=dropout,
    )


def _derive_objectives(c: Config) -> dict[str, Objective]:
    """Return the objectives that are trained.

    A pair objective needs the labels of its `pairs`; setting its weight without them is an error.
    An objective of OF_TOKENS replaces `mlm`.
    """
    others = [name for name in OF_TOKENS if name in c.objectives]
    if len(others) > 1:
        raise ConfigError(
            f"config.objectives has both {others[0]} and {others[1]}",
            "a model learns tokens by one of them: leave the other out",
        )
    active: dict[str, Objective] = {}
    for name, objective in c.objectives.items():
        if name not in OBJECTIVES:
            raise ConfigError(f"config.objectives has no {name!r}", suggest(name, OBJECTIVES))
        if name in ("nsp", "sop"):
            fits = name == c.pairs
        else:
            fits = name != "mlm" or not others
        if fits:
            weight = OBJECTIVES[name].weight if objective.weight is None else objective.weight
            active[name] = dataclasses.replace(objective, weight=weight)
        elif objective.weight is not None:
            raise _refuse_weight(c, name, objective.weight, others)
    return active


def _refuse_weight(c: Config, name: str, weight: float, others: list[str]) -> ConfigError:
    """Return the refusal of a weight of an objective that is not trained."""
    said = f"config.objectives.{name}.weight = {weight}"
    if name == "mlm":
        return ConfigError(
            f"{said} beside objectives.{others[0]}",
            "a model learns tokens by one of them: leave the other out",
        )
    return ConfigError(
        f"{said} but config.pairs = {c.pairs!r}",
        f"set --config.pairs={name}, or leave the weight out",
    )
