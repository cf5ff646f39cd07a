"""The name of a run: a hash of the knobs that determine what is trained."""

import dataclasses
import hashlib
import json
from typing import Any

from bert_jax import config as configs
from bert_jax.config import knobs

# Knobs that may change on resume, and yet change what is trained.
COUNT = ("checkpoints.patience", "parallel.step")


def identity(config: knobs.Config) -> str:
    """Return the name of a run: a hash of the knobs that determine what is trained.

    Only knobs that differ from their defaults are hashed, so adding a knob renames no run. Knobs
    that do not affect training are left out. Configs that mean the same get the same name.
    """
    text = json.dumps(list_trained_knobs(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def list_trained_knobs(config: knobs.Config) -> dict[str, Any]:
    """Return {path: value} of the knobs that are hashed for the name of a run."""
    masking = config.masking
    if not masking.phases and masking.prediction_rate == masking.rate:
        masking = dataclasses.replace(masking, prediction_rate=None)
    # A branch is named by its step: what the trunk was follows from the other knobs.
    branch = config.branch_from.removeprefix(config.trunk[0])
    config = dataclasses.replace(config, masking=masking, branch_from=branch)
    usual = configs.list_usual_values()
    if not config.masked:
        usual = usual | {"masking.rounding": masking.rounding}
    named = {}
    for knob, value in configs.flatten(configs.to_dict(config)).items():
        # With patience, evaluations end training: their settings decide when.
        ends = config.checkpoints.patience and knob.startswith("evals.validation.")
        counts = knob in COUNT or (ends and not knob.endswith(".batch_size"))
        if usual.get(knob, ...) != value and (counts or not configs.free_on_resume(knob)):
            named[knob] = value
    if config.model.remat == "full":  # its name from when it could not yet be changed
        named["model.remat"] = True
    return named
