"""The conditions under which each knob has an effect: one table, and the check against it.

A knob that is set where it does nothing would misrepresent a run, and make a study compare runs
that are the same. So a user's config is refused there; the recorded config of an older run is not.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bert_jax.config.data_knobs import DRAWS, OF_DRAWS, OF_UNITS, SOURCES, UNITS
from bert_jax.config.knobs import LABELLED, POOLED, Config
from bert_jax.config.load import flag
from bert_jax.errors import ConfigError

NAMED = ("objectives", "evals")  # sections whose entries have their own names: * in a path below


class Where(NamedTuple):
    """A condition under which a knob has an effect."""

    text: str  # what the knob is for
    # Takes the resolved config, and the name of the entry in a section with named entries.
    holds: Callable[[Config, str], bool]
    hint: str = ""  # how to make it hold


class Idle(NamedTuple):
    """A knob that is set where it has no effect."""

    path: str
    value: Any
    default: Any
    where: Where

    def error(self, place: str = "") -> ConfigError:
        """Return the refusal of the knob; `place` says where it is set, if not in the config."""
        leave = f"leave it at its default, {flag(self.path, self.default)}"
        return ConfigError(
            f"{place}{self.path} = {self.value!r} does nothing: it is for {self.where.text}",
            f"{self.where.hint}, or {leave}" if self.where.hint else leave,
        )


# --- conditions ---------------------------------------------------------------------------------


def kind_of(c: Config) -> str:
    """Return the objective over labels; empty where there is none."""
    return next((name for name in c.objectives if name in LABELLED), "")


def _is(path: str, *values: Any) -> Where:
    """Return the condition that a knob has one of these values."""
    of = operator.attrgetter(path)
    return Where(
        f"{path} = {' or '.join(map(str, values))}",
        lambda c, _: of(c) in values,
        f"--config.{path}={values[0]}",
    )


def _above_0(path: str, example: str) -> Where:
    """Return the condition that a number is above 0."""
    of = operator.attrgetter(path)
    return Where(f"{path} above 0", lambda c, _: of(c) > 0, f"--config.{path}={example}")


def _labelled(c: Config, _: str = "") -> bool:
    return bool(c.task.source or kind_of(c))


def _for(*kinds: str, hint: str = "") -> Where:
    return Where(f"tasks of the kind {' or '.join(kinds)}", lambda c, _: kind_of(c) in kinds, hint)


def _unit(knob: str) -> Where:
    """Return the condition that training or an evaluation selects a unit that reads a knob."""
    units = [name for name, knobs in UNITS.items() if knob in knobs]
    return Where(
        f"masking.unit = {' or '.join(units)}, or that of an evaluation",
        lambda c, _: bool({c.masking.unit, *(e.unit for e in c.evals.values())} & {*units}),
        f"--config.masking.unit={units[0]}",
    )


def _source(knob: str) -> Where:
    """Return the condition that the corpus has a source that reads a knob."""
    return _is("corpus.source", *(name for name, row in SOURCES.items() if knob in row.knobs))


def _from(scheme: str) -> Where:
    """Return the condition that a task's source is of a scheme, or not named yet."""
    return Where(
        f"task.source = {scheme}…",
        lambda c, _: not c.task.source or c.task.source.startswith(scheme),
    )


def _drawn(knob: str) -> Where:
    """Return the condition that rates are drawn by a law that reads a knob."""
    return _is("masking.draw", *(name for name, knobs in DRAWS.items() if knob in knobs))


ALWAYS = Where("every run", lambda c, _: True)
LABELS = Where(
    "labelled data",
    _labelled,
    "--config.task.source=files:PATTERN or tfds:NAME says where the data is",
)
CLASSES = Where(
    "heads over labels", lambda c, _: bool(kind_of(c)), f"train one of: {', '.join(LABELLED)}"
)
TEXT = Where("training on a corpus, not on labelled data", lambda c, _: not _labelled(c))
MASKS = Where(
    "masked text, not labelled data or causal_lm",
    lambda c, _: not _labelled(c) and "causal_lm" not in c.objectives,
)
FIXED = Where("masking.draw = fixed", lambda c, _: c.masking.draw == "fixed")
WORDS = Where(
    "the heads of mlm and causal_lm", lambda c, _: bool({"mlm", "causal_lm"} & set(c.heads))
)
POOLS = Where(
    f"heads over the vector of a text ({', '.join(POOLED)})",
    lambda c, _: bool({*POOLED} & {*c.objectives}),
)
INIT = Where(
    "init_from", lambda c, _: bool(c.init_from), "name the model that training starts from"
)
NO_EPOCHS = Where("epochs = None", lambda c, _: c.epochs is None, "--config.epochs=None")
CUT = Where("a corpus or tokenizer.path", lambda c, _: not _labelled(c) or bool(c.tokenizer.path))
WORDPIECE = Where(
    "WordPiece of a corpus or tokenizer.path",
    lambda c, _: CUT.holds(c, "") and c.tokenizer.kind != "bpe",
)
TRAINED = Where(
    "a vocabulary that is trained, on a corpus and without tokenizer.path",
    lambda c, _: not _labelled(c) and not c.tokenizer.path,
)
TABLE = Where(
    "tsv and csv files",
    lambda c, _: _from("files:").holds(c, "") and c.task.format in ("auto", "tsv", "csv"),
    "--config.task.format=tsv",
)
WINDOWS = Where(
    "texts that are read in windows",
    lambda c, _: kind_of(c) in ("tag", "span") and c.task.long in ("auto", "windows"),
)
DROPS = Where(
    "dropout above 0",
    lambda c, _: bool(
        c.model.dropout or c.model.attention_dropout or (kind_of(c) and c.model.classifier_dropout)
    ),
    "--config.model.dropout=0.1",
)


def _transforms(c: Config) -> bool:
    """Tell whether a head over labels has a dense layer, head_activation and LayerNorm."""
    labels = {*POOLED, *LABELLED} & {*c.objectives}
    return c.model.pooler == "transform" and c.model.features == 1 and bool(labels)


# The condition of a knob or a section: a knob is subject to its own and to those of its sections.
EFFECTS: dict[str, Where] = {
    **dict.fromkeys(("seed", "data_seed", "batch_size", "sequence_length"), ALWAYS),
    "steps": NO_EPOCHS,
    "epochs": ALWAYS,
    "packing": TEXT,
    "pairs": TEXT,
    "branch_from": ALWAYS,
    "init_from": ALWAYS,
    **dict.fromkeys(("init_fresh", "init_fresh_layers", "init_vocab"), INIT),
    "corpus": TEXT,
    **{f"corpus.{knob}": _source(knob) for row in SOURCES.values() for knob in row.knobs},
    "corpus.language": _is("corpus.sentences", "auto", "split"),
    "task": LABELS,
    "task.files": _from("files:"),
    "task.tfds_dir": _from("tfds:"),
    "task.format": _from("files:"),
    "task.columns": TABLE,
    "task.text_pair": _for("classify", "regress", "span", "choice"),
    "task.options": _for("choice"),
    "task.values": _for("classify", "tag", "choice"),
    "task.validation_fraction": _from("files:"),
    "task.stride": WINDOWS,
    "task.stride_as": WINDOWS,
    **dict.fromkeys(
        ("task.question_tokens", "task.answer_tokens", "task.n_best", "task.no_answer"),
        _for("span"),
    ),
    "task.no_answer_threshold": Where(
        "questions without an answer", lambda c, _: c.task.no_answer, "--config.task.no_answer=true"
    ),
    "task.group": _is("task.pad", "batch"),
    "tokenizer.path": ALWAYS,
    "tokenizer.kind": CUT,
    "tokenizer.vocab_size": TRAINED,
    "tokenizer.lowercase": Where(
        "WordPiece that is trained, on a corpus and without tokenizer.path",
        lambda c, _: TRAINED.holds(c, "") and c.tokenizer.kind != "bpe",
    ),
    "tokenizer.max_word_length": WORDPIECE,
    "tokenizer.train_characters": TRAINED,
    "examples": TEXT,
    "examples.short_probability": _is("pairs", "nsp", "sop"),
    "examples.random_next_probability": _is("pairs", "nsp"),
    "examples.truncate": _is("pairs", "nsp", "sop"),
    "masking": MASKS,
    "masking.rate": FIXED,
    "masking.prediction_rate": Where(
        "the objective mlm, and a fixed rate",
        lambda c, _: "mlm" in c.heads and FIXED.holds(c, ""),
    ),
    **{f"masking.{knob}": _unit(knob) for knob in OF_UNITS},
    "masking.overflow": Where(
        "a masking.unit other than token",
        lambda c, _: c.masking.unit != "token",
        "--config.masking.unit=word",
    ),
    "masking.phases": FIXED,
    **{f"masking.{knob}": _drawn(knob) for knob in OF_DRAWS},
    "masking.weights_power": _is("masking.weights", "frequency"),
    "masking.random_from": Where(
        "a share of random tokens in masking.replace", lambda c, _: c.masking.replace[1] > 0
    ),
    "model": ALWAYS,
    "model.max_positions": _is("model.position", "learned", "relative"),
    "model.position_buckets": _is("model.position", "relative"),
    "model.first_position": _is("model.position", "learned"),
    "model.rotary_base": _is("model.position", "rotary"),
    "model.rotary_base_near": Where(
        "rotary positions in layers with a window",
        lambda c, _: c.model.position == "rotary" and c.model.window > 0,
        "--config.model.position=rotary --config.model.window=N",
    ),
    "model.first_norm": _is("model.norm", "pre"),
    "model.head_activation": Where(
        f"{WORDS.text} without model.word_head = matrix, and model.pooler = transform",
        lambda c, _: (WORDS.holds(c, "") and c.model.word_head != "matrix") or _transforms(c),
    ),
    "model.word_head": WORDS,
    "model.pooling": POOLS,
    "model.pooler": Where(
        f"{POOLS.text}, or transform for others over labels, with model.features = 1",
        lambda c, _: _transforms(c) or (c.model.features == 1 and POOLS.holds(c, "")),
    ),
    "model.pooler_bias": Where(
        f"{POOLS.text}, with a pooler of the encoder and model.features = 1",
        lambda c, _: c.model.pooler != "transform" and EFFECTS["model.pooler"].holds(c, ""),
    ),
    "model.features": CLASSES,
    "model.global_every": _above_0("model.window", "N"),
    "model.classifier_dropout": CLASSES,
    "objectives.*.weight": ALWAYS,
    "objectives.*.labels": Where("classify and tag", lambda c, name: name in ("classify", "tag")),
    "objectives.*.end": Where(
        "causal_lm and hybrid",
        lambda c, name: name in ("causal_lm", "hybrid"),
    ),
    "objectives.*.gamma": Where("diffusion", lambda c, name: name == "diffusion"),
    "objectives.*.share": Where("hybrid", lambda c, name: name == "hybrid"),
    "objectives.*.shift": Where("hybrid", lambda c, name: name == "hybrid"),
    "objectives.*.generator": Where("replaced", lambda c, name: name == "replaced"),
    "optim": ALWAYS,
    "optim.warmup_steps": Where(
        "optim.warmup_fraction = None",
        lambda c, _: c.optim.warmup_fraction is None,
        "--config.optim.warmup_fraction=None",
    ),
    "optim.spike_sigmas": _above_0("optim.spike_window", "100"),
    "optim.decay_fraction": _is("optim.schedule", "wsd"),
    "optim.final_fraction": _is("optim.schedule", "linear", "cosine", "wsd"),
    "optim.no_decay": _above_0("optim.weight_decay", "0.01"),
    "parallel": ALWAYS,
    "parallel.prng": DROPS,
    "loader": ALWAYS,
    "checkpoints": ALWAYS,
    "checkpoints.every": Where(
        "checkpoints.epochs = None",
        lambda c, _: c.checkpoints.epochs is None,
        "--config.checkpoints.epochs=None",
    ),
    "checkpoints.epochs": LABELS._replace(hint="set checkpoints.every"),
    "checkpoints.at_words": TEXT._replace(hint="set checkpoints.at"),
    "checkpoints.patience": Where(
        "a metric named in checkpoints.best",
        lambda c, _: bool(c.checkpoints.best),
        "name the metric",
    ),
    "evals.*.every": Where(
        "an evaluation whose epochs is None",
        lambda c, name: c.evals[name].epochs is None,
        "set its epochs to None",
    ),
    "evals.*.epochs": LABELS._replace(hint="set its `every`"),
    "evals.*.split": LABELS._replace(hint="a corpus has the split validation only"),
    "evals.*.rate": MASKS,
    "evals.*.replace": MASKS,
    "evals.*.unit": MASKS,
    "evals.*.seed": TEXT,
    "evals.*.batch_size": ALWAYS,
    "logging": ALWAYS,
    "logging.samples": Where(
        "evals.validation of labelled data, or of a corpus by mlm or causal_lm",
        lambda c, _: "validation" in c.evals and (_labelled(c) or WORDS.holds(c, "")),
    ),
}


# Values that are accepted where a knob has no effect, because they mean the same as leaving it out.
SAME: dict[str, Callable[[Config], tuple[Any, ...]]] = {
    "pairs": lambda c: ("none",),
    "tokenizer.kind": lambda c: ("wordpiece",),
    "tokenizer.lowercase": lambda c: (False,) if c.tokenizer.kind == "bpe" else (),
    "model.head_activation": lambda c: (c.model.activation,),
    "model.classifier_dropout": lambda c: (c.model.dropout,),
    "optim.warmup_steps": lambda c: (c.optim.warmup_steps,),
    "logging.samples": lambda c: (0,),
}

# Knob -> the knobs that it replaces where it is set.
INSTEAD: dict[str, tuple[str, ...]] = {
    "steps": ("epochs",),
    "epochs": ("steps",),
    "optim.warmup_steps": ("optim.warmup_fraction",),
    "optim.warmup_fraction": ("optim.warmup_steps",),
    "checkpoints.every": ("checkpoints.epochs",),
    "checkpoints.epochs": ("checkpoints.every",),
    "evals.*.every": ("evals.*.epochs",),
    "evals.*.epochs": ("evals.*.every",),
    "logging.trackers": ("logging.tensorboard",),
    "model.size": ("model.layers", "model.hidden", "model.heads", "model.mlp"),
    "tokenizer.path": ("tokenizer.vocab_size", "tokenizer.lowercase", "tokenizer.train_characters"),
}


# --- the check ----------------------------------------------------------------------------------


def conditions(path: str) -> list[Where]:
    """Return the conditions of a knob: its own and those of its sections."""
    names = general(path).split(".")
    prefixes = (".".join(names[: i + 1]) for i in range(len(names)))
    return [EFFECTS[prefix] for prefix in prefixes if prefix in EFFECTS]


def general(path: str) -> str:
    """Return a path with * for the name of an entry."""
    return re.sub(rf"^({'|'.join(NAMED)})\.[^.]+", r"\1.*", path)


def idle(written: Config, resolved: Config, defaults: Mapping[str, Any]) -> list[Idle]:
    """Return the knobs that differ from their defaults where they have no effect.

    `resolved` is the config that the user has `written` with dependent values filled in; values by
    path in `defaults` are those of a preset, a task or a model, and count as defaults.
    """
    knobs = []
    for path, value, default in _leaves(written):
        if value == default or (path in defaults and value == defaults[path]):
            continue
        entry = path.split(".")[1] if path.split(".")[0] in NAMED else ""
        failed = next((w for w in conditions(path) if not w.holds(resolved, entry)), None)
        if failed and value not in SAME.get(path, lambda c: ())(resolved):
            knobs.append(Idle(path, value, default, failed))
    return knobs


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, value and default of every knob."""
    defaults = type(node)()
    for field in dataclasses.fields(node):
        value, path = getattr(node, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{path}.")
        elif path in NAMED:
            for name, entry in value.items():
                yield from _leaves(entry, f"{path}.{name}.")
        else:
            yield path, value, getattr(defaults, field.name)
