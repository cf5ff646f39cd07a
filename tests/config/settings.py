"""Settings of tasks and objectives, as a config file has them."""

from typing import Any

from bert_jax import config

Settings = dict[str, Any]


def task(kind: str) -> Settings:
    """Return the settings of a task with one objective over labels."""
    labels = ("a", "b") if kind in ("classify", "tag") else ()
    found = {"objectives": {kind: {"weight": 1.0, "labels": labels}}, "checkpoints.best": "loss"}
    found |= {"task.source": "files:data.tsv", "init_from": "run", "pairs": "none"}
    return found | ({"task.options": ("one", "two")} if kind == "choice" else {})


CLASSIFY, SPAN, TAG = task("classify"), task("span"), task("tag")
MASK_ONLY = {"masking.replace": (1.0, 0.0, 0.0), "evals.validation.replace": (1.0, 0.0, 0.0)}
NSP = {"objectives": {"nsp": {"weight": 1.0}}, "checkpoints.best": "nsp_loss"}
CAUSAL = {"objectives": {"causal_lm": {"weight": 1.0}}, "model.causal": True, "pairs": "none"}
CAUSAL |= {"checkpoints.best": "causal_lm_loss"}
DIFFUSION = {"objectives.diffusion.weight": 1.0, "masking.draw": "uniform"} | MASK_ONLY
HYBRID = {"objectives.hybrid.weight": 1.0, "pairs": "none"}
REPLACED = {"objectives.replaced.weight": 50.0, "pairs": "none"}


def write(values: Settings) -> Any:
    """Return the ConfigDict of a file that sets knobs, whatever they might replace."""
    tree = config.default()
    for path, value in sorted(values.items(), key=lambda one: one[0] != "objectives"):
        config.put(tree, path.split("."), value)
    return tree
