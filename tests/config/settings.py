"""Values of knobs away from their defaults, and settings under which a condition holds or fails."""

from __future__ import annotations

from typing import Any

from bert_jax import config
from bert_jax.config import table

Settings = dict[str, Any]


def task(kind: str) -> Settings:
    """Return the settings of a task with one objective over labels."""
    labels = ("a", "b") if kind in ("classify", "tag") else ()
    found = {"objectives": {kind: {"weight": 1.0, "labels": labels}}, "checkpoints.best": "loss"}
    found |= {"task.source": "files:data.tsv", "init_from": "run", "pairs": "none"}
    return found | ({"task.options": ("one", "two")} if kind == "choice" else {})


MASK_ONLY = {"masking.replace": (1.0, 0.0, 0.0), "evals.validation.replace": (1.0, 0.0, 0.0)}
NSP = {"objectives": {"nsp": {"weight": 1.0}}, "checkpoints.best": "nsp_loss"}
CAUSAL = {"objectives": {"causal_lm": {"weight": 1.0}}, "model.causal": True, "pairs": "none"}
CAUSAL |= {"checkpoints.best": "causal_lm_loss"}
ENTRIES = {
    "causal_lm": CAUSAL,
    "diffusion": {"objectives.diffusion.weight": 1.0, "masking.draw": "uniform"} | MASK_ONLY,
    "hybrid": {"objectives.hybrid.weight": 1.0, "pairs": "none"},
    "replaced": {"objectives.replaced.weight": 50.0} | MASK_ONLY,
    "classify": task("classify"),
    "mlm": {},
}
CLASSIFY, SPAN, TAG = task("classify"), task("span"), task("tag")
OF_TFDS = {"task.source": "tfds:x"}
UNDROPPED = {"model.dropout": 0.0, "model.attention_dropout": 0.0}
NAMED: dict[str, tuple[Settings, Settings]] = {  # condition -> where it holds, where it fails
    "labels": (CLASSIFY, {}),
    "text": ({}, CLASSIFY),
    "masks": ({}, CAUSAL),
    "classes": (CLASSIFY, {}),
    "files": (CLASSIFY, CLASSIFY | OF_TFDS),
    "tfds": (CLASSIFY | OF_TFDS, CLASSIFY),
    "vocabulary": ({}, CLASSIFY),
    "trained": ({}, {"tokenizer.path": "vocab.txt"}),
    "mlm": ({}, NSP),
    "random": ({}, MASK_ONLY),
    "words": ({}, NSP),
    "head activation": ({}, {"model.word_head": "matrix"}),
    "pooled": ({}, {"pairs": "none"}),
    "pooler": ({}, {"pairs": "none"}),
    "encoder pooler": ({}, TAG),
    "dropout": ({}, UNDROPPED),
    "samples": ({}, NSP),
    "init_from": ({"init_from": "run"}, {}),
    "checkpoints.best": ({}, {"checkpoints.best": ""}),
    "task.no_answer": (SPAN | {"task.no_answer": True}, SPAN),
    "epochs=None": ({}, {"epochs": 3.0}),
    "checkpoints.epochs=None": (CLASSIFY, CLASSIFY | {"checkpoints.epochs": 1.0}),
    "evals.*.epochs=None": (CLASSIFY, CLASSIFY | {"evals.validation.epochs": 1.0}),
    "optim.warmup_fraction=None": ({}, {"optim.warmup_fraction": 0.1}),
    "optim.weight_decay>0": ({}, {"optim.weight_decay": 0.0}),
    "model.window>0": ({"model.window": 8}, {}),
}
VALUES: Settings = {  # where another value would break a rule
    "pairs": "sop",
    "masking.prediction_rate": 0.1,
    "masking.phases": ((0.5, 0.3, "step"),),
    "masking.span_mean": 2.0,
    "masking.span_max": 8,
    "masking.random_from": "regular",
    "model.pooler": "gelu",
    "model.head_activation": "relu",
    "model.layers": 3,
    "model.hidden": 48,
    "model.max_positions": 256,
    "model.vocab_multiple": 7,
    "model.mlp_biases": False,
    "model.pooler_bias": False,
    "model.remat": "full",
    "model.dtype": "bfloat16",
    "optim.freeze": "^encoder/embeddings",
    "objectives.*.labels": ("x", "y"),
    "optim.no_decay": "bias$",
    "task.values": ("0", "1"),
    "tokenizer.kind": "bpe",
    "task.files": {"train": "a.tsv"},
    "task.options": ("a", "b", "c"),
    "task.source": "files:other.tsv",
}


def hold(condition: str) -> Settings:
    """Return settings under which a condition of a declaration holds."""
    if condition in NAMED:
        return NAMED[condition][0]
    path, _, values = condition.partition("=")
    value = values.split("|")[0]
    if path == "kind":
        return task(value)
    if path == "objective":
        return ENTRIES[value]
    return {"masking.unit" if path == "unit" else path: value}


def fail(condition: str) -> Settings:
    """Return settings under which a condition of a declaration fails."""
    if condition in NAMED:
        return NAMED[condition][1]
    path, _, values = condition.partition("=")
    listed = values.split("|")
    if path == "kind":
        kinds = ("classify", "tag", "choice", "span")
        return next(task(kind) for kind in kinds if kind not in listed)
    if path in ("unit", "objective"):
        return {}
    others = [value for value in table.list_knobs()[path].choices if value not in listed]
    return {path: others[0]}


def choose_value(path: str) -> Any:
    """Return a value of a knob that is not its default."""
    knob = table.list_knobs()[path]
    if path in VALUES:
        return VALUES[path]
    if knob.choices:
        other = next(value for value in knob.choices if value != knob.default)
        return (other,) if knob.is_tuple else other
    if knob.type is bool:
        return not knob.default
    if knob.type is str:
        return ("x",) if knob.is_tuple else "^x"
    if knob.is_tuple:
        return (5,) if knob.type is int else (1.0, 0.0, 0.0)
    if knob.type is int:
        return knob.default // 2 if (knob.default or 0) > 1 else 2
    lowest = knob.item.__metadata__[0].ge if hasattr(knob.item, "__metadata__") else 0
    return max((knob.default or 0.5) / 2, lowest or 0.0) if knob.default != lowest else 0.25


def name_entry(path: str, settings: Settings) -> str:
    """Return a path with the name of an entry in place of *."""
    if path.startswith("objectives."):
        names = [name for name in ENTRIES if ENTRIES[name] == settings]
        return path.replace("*", (names or ["mlm"])[0])
    return path.replace("*", "validation")


def write(values: Settings) -> Any:
    """Return the ConfigDict of a file that sets knobs, whatever they might replace."""
    tree = config.default()
    for path, value in sorted(values.items(), key=lambda one: one[0] != "objectives"):
        config.put(tree, path.split("."), value)
    return tree
