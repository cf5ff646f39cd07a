"""Fill in the values of a config that follow from other knobs."""

import dataclasses

from bert_jax.config import validation
from bert_jax.config.knobs import OBJECTIVES, SIZES, Config, Masking, Model, Objective
from bert_jax.errors import ConfigError, need, suggest

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
    objectives = _derive_objectives(c)
    c = dataclasses.replace(c, model=model, objectives=objectives, optim=optim, logging=logging)
    if not c.masked:  # the same run, whatever the base of a study has
        masking = dataclasses.replace(c.masking, rounding=Masking().rounding)
        c = dataclasses.replace(c, masking=masking)
    validation.check_rules(c)
    return c


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
    """Return {name: Objective} of the objectives that are trained, with their weights.

    A pair objective is trained only if `pairs` names it. An objective of OF_TOKENS replaces `mlm`.
    An objective that is left out for these reasons must not have a weight.
    """
    others = [name for name in OF_TOKENS if name in c.objectives]
    beside = "a model learns tokens by one of them: leave the other out"
    need(len(others) < 2, f"config.objectives has both {' and '.join(others)}", beside)
    trained: dict[str, Objective] = {}
    for name, objective in c.objectives.items():
        if name not in OBJECTIVES:
            raise ConfigError(f"config.objectives has no {name!r}", suggest(name, OBJECTIVES))
        said = f"config.objectives.{name}.weight = {objective.weight}"
        if name in ("nsp", "sop") and name != c.pairs:
            hint = f"set --config.pairs={name}, or leave the weight out"
            need(objective.weight is None, f"{said} but config.pairs = {c.pairs!r}", hint)
        elif name == "mlm" and others:
            need(objective.weight is None, f"{said} beside objectives.{others[0]}", beside)
        else:
            weight = OBJECTIVES[name].weight if objective.weight is None else objective.weight
            trained[name] = dataclasses.replace(objective, weight=weight)
    return trained
