"""Settings of tasks and objectives, as a config file has them."""

from collections.abc import Mapping
from typing import Any

from bert_jax import config
from bert_jax.config import knobs

Settings = dict[str, Any]


def task(kind: str) -> Settings:
    """Return the settings of a task with one objective over labels."""
    labels = ("a", "b") if kind in ("classify", "tag") else ()
    found = {"objectives": {kind: {"weight": 1.0, "labels": labels}}, "checkpoints.best": "loss"}
    return found | {"task.source": "files:data.tsv", "init_from": "run", "pairs": "none"}


CLASSIFY, SPAN, TAG = task("classify"), task("span"), task("tag")
MASK_ONLY = {"masking.replace": (1.0, 0.0, 0.0), "evals.validation.replace": (1.0, 0.0, 0.0)}
NSP = {"objectives": {"nsp": {"weight": 1.0}}, "checkpoints.best": "nsp_loss"}
CAUSAL = {"objectives": {"causal_lm": {"weight": 1.0}}, "model.causal": True, "pairs": "none"}
CAUSAL |= {"checkpoints.best": "causal_lm_loss"}
HYBRID = {"objectives.hybrid.weight": 1.0, "pairs": "none"}


def write(values: Settings) -> Any:
    """Return the ConfigDict of a file that sets knobs, whatever they might replace."""
    tree = config.default()
    for path, value in sorted(values.items(), key=lambda one: one[0] != "objectives"):
        config.put(tree, path.split("."), value)
    return tree


def set_and_resolve(tree: Any, values: Mapping[str, object]) -> knobs.Config:
    """Set knobs of a ConfigDict, and resolve it; keys use __ for the dots of a path."""
    for key, value in values.items():
        config.override(tree, key.replace("__", "."), str(value))
    return config.resolve_and_list_idle(tree)[0]  # what has no effect in a test is no matter
