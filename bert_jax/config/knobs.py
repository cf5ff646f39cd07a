"""Every knob of a run, once: name, default, meaning and range.

`model_knobs.py` declares those of the model, `data_knobs.py` the sections about data, and
`run_knobs.py` those about batches in memory, checkpoints, evaluations and metrics, which are
imported here.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from bert_jax.config.data_knobs import (
    Corpus,
    Examples,
    Masking,
    Task,
    Tokenizer,
    knob,
)
from bert_jax.config.model_knobs import LONGEST, Model
from bert_jax.config.model_knobs import SIZES as SIZES
from bert_jax.config.run_knobs import EVALUATED as EVALUATED
from bert_jax.config.run_knobs import MOST_ROWS as MOST_ROWS
from bert_jax.config.run_knobs import Checkpoints, Eval, Loader, Logging


class ObjectiveRow(NamedTuple):
    """Row of OBJECTIVES; `bert_jax/objectives` has the objective itself."""

    targets: str  # from "text" alone, or from "labels" of a task's data
    default: bool = False  # trained where a config names no objective; nsp and sop with their pairs
    metrics: tuple[str, ...] = ()  # of its evaluation, beside the loss
    unit: str = "nats"  # of the loss
    head: str = ""  # whose head it trains, where that is another objective's
    weight: float = 1.0  # where a config sets none
    pooled: bool = False  # whether its head reads one vector of a text, and not its tokens


OBJECTIVES = {
    "mlm": ObjectiveRow("text", default=True, metrics=("accuracy",)),
    "nsp": ObjectiveRow("text", default=True, metrics=("accuracy",), pooled=True),
    "sop": ObjectiveRow("text", default=True, metrics=("accuracy",), pooled=True),
    "diffusion": ObjectiveRow("text", metrics=("accuracy",), head="mlm"),
    "hybrid": ObjectiveRow("text", metrics=("accuracy",), head="mlm"),
    "causal_lm": ObjectiveRow("text", metrics=("accuracy",)),
    "replaced": ObjectiveRow("text", metrics=("accuracy",), weight=50.0),
    # `scores.py` computes the metrics of labelled data that apply.
    # f1 is that of the second of two classes; with more classes there is macro_f1 alone.
    "classify": ObjectiveRow("labels", metrics=("accuracy", "f1", "macro_f1", "mcc"), pooled=True),
    "regress": ObjectiveRow(
        "labels", metrics=("pearson", "spearman", "mse"), unit="squared error", pooled=True
    ),
    # All but accuracy are of entities, for BIO labels.
    "tag": ObjectiveRow("labels", metrics=("accuracy", "precision", "recall", "f1")),
    "span": ObjectiveRow(
        "labels",
        metrics=(
            *("exact", "f1", "has_answer_exact", "has_answer_f1", "no_answer_exact"),
            *("no_answer_f1", "best_exact", "best_exact_threshold", "best_f1"),
            "best_f1_threshold",
        ),
    ),
    "choice": ObjectiveRow("labels", metrics=("accuracy",), pooled=True),
}
DEFAULT = tuple(name for name, row in OBJECTIVES.items() if row.default)
PRETRAINING = tuple(name for name, row in OBJECTIVES.items() if row.targets == "text")
LABELLED = tuple(name for name, row in OBJECTIVES.items() if row.targets == "labels")
POOLED = tuple(name for name, row in OBJECTIVES.items() if row.pooled)
METRICS = {name: OBJECTIVES[name].metrics for name in LABELLED}

LINE = 16 << 20  # bytes of the longest line of labelled data or of an input of `predict`
BOUND = 2_048  # tokens of a row at most, under objective diffusion
COUNTED = 2**31  # updates at most
TEXT = 1_000_000  # characters of the longest text in such a line


@dataclasses.dataclass(frozen=True)
class Objective:
    """One entry of `objectives`."""

    weight: float | None = knob(
        None,
        "factor in the loss; 0 keeps head and metrics; None is 1 where `pairs` allows, and 50 of "
        "replaced, as ELECTRA has it",
        low=0,
    )
    labels: tuple[str, ...] = knob((), "heads over labels: names of the classes")
    end: bool = knob(
        True,
        "causal_lm, hybrid: predict each [SEP] too, so that the model learns where a text ends",
    )
    gamma: float = knob(
        1.0,
        "diffusion: power of the weights; 1 bounds the likelihood, 0 weighs all predictions alike",
        low=0,
        high=1,
    )
    share: float = knob(
        0.5, "hybrid: share of the examples, and of the loss, that is causal", low=0, high=1
    )
    shift: bool = knob(
        False, "hybrid: a masked token is predicted from the place before it, as GPT-BERT does"
    )
    generator: float = knob(
        0.0,
        "replaced: tokens are replaced by a generator that mlm trains beside the encoder, with its "
        "layers, its embeddings and this share of its width; 0 is none, and the random tokens of "
        "masking.replace",
        low=0,
        high=1,
    )


@dataclasses.dataclass(frozen=True)
class Optim:
    """Optimizer, schedule and clipping."""

    name: str = knob(
        "adamw", "adam2018 has no bias correction", choices=("adam2018", "adamw", "lamb")
    )
    learning_rate: float = knob(1e-4, "peak", low=0)
    warmup_steps: int = knob(10_000, "linear warm-up", low=0, high=COUNTED)
    warmup_fraction: float | None = knob(
        None, "warm-up as a share of the steps, in place of warmup_steps", low=0, high=1
    )
    layer_decay: float = knob(
        1.0, "learning rate of a layer, as a share of that of the layer above", low=0, high=1
    )
    freeze: str = knob(
        "",
        "regular expression of parameters that are not trained, such as ^encoder/; empty is none",
    )
    schedule: str = knob(
        "linear",
        "after warm-up; linear2018 decays from step 0; wsd after a stable phase at the peak",
        choices=("linear", "linear2018", "cosine", "constant", "wsd"),
    )
    decay_fraction: float = knob(
        0.2, "wsd: share of the steps that decay, in a line; not the warm-up", low=0, high=1
    )
    final_fraction: float = knob(
        0.0,
        "linear, cosine, wsd: share of the peak that the schedule reaches after the last update, "
        "as published schedules do",
        low=0,
        high=1,
    )
    b1: float = knob(0.9, "first moment", low=0, high=0.999999)
    b2: float = knob(0.999, "second moment", low=0, high=0.999999)
    epsilon: float = knob(1e-6, "added to the root of the second moment", low=1e-30)
    weight_decay: float = knob(0.01, "decoupled, multiplied by the learning rate", low=0)
    no_decay: str = knob(
        r"norm/|bias$",
        "regular expression of parameters without weight decay; must match some; empty is none",
    )
    clip_norm: float = knob(1.0, "largest global norm of the gradient; 0 never clips", low=0)
    accumulation: int = knob(1, "microbatches an update; batch_size stays the same", low=1)
    nonfinite_limit: int = knob(
        5, "updates in a row, not finite or spikes, that are skipped before the run ends", low=1
    )
    spike_window: int = knob(
        0,
        "latest losses that a loss is compared with to detect a spike; 0 detects none",
        low=0,
        high=10_000,
    )
    spike_sigmas: float = knob(
        6.0, "a loss this many deviations above the window's mean is a spike, and skipped", low=0
    )


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Devices. `data` = -1 takes what fsdp and tensor leave."""

    step: str = knob(
        "jit", "jit over a mesh, or pmap for pure data parallelism", choices=("jit", "pmap")
    )
    data: int = knob(-1, "ways the batch is split", low=-1)
    fsdp: int = knob(1, "ways the batch, parameters and optimizer state are split", low=1)
    tensor: int = knob(1, "ways heads and feed-forward are split", low=1)
    arms: str = knob(
        "auto",
        "runs that train together on one device: one after the other (map) or all at once (vmap), "
        "which needs the prng threefry2x32; auto is map on a CPU or with another prng, else vmap",
        choices=("auto", "map", "vmap"),
    )
    distributed: bool = knob(False, "several processes: start jax.distributed before anything else")
    prng: str = knob(
        "auto",
        "generator of dropout bits; masks always use threefry; auto is threefry2x32, which alone "
        "gives runs under vmap the bits of runs alone",
        choices=("auto", "threefry2x32", "rbg", "unsafe_rbg"),
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """The config of one run."""

    seed: int = knob(0, "seed of initialisation, dropout and masks", low=0, high=2**31 - 1)
    data_seed: int = knob(0, "seed of order, pairs and packing", low=0, high=2**31 - 1)
    steps: int = knob(1_000_000, "updates", low=1, high=COUNTED)
    epochs: float | None = knob(
        None,
        "passes over the training data, in place of steps; of text at most so many",
        low=0.01,
        high=1_000_000,
    )
    batch_size: int = knob(
        256,
        "examples an update, over all devices and microbatches; of an example that is read in "
        "several views (masking.prediction_rate), each counts",
        low=1,
        high=1 << 20,
    )
    sequence_length: int = knob(128, "tokens a row", low=8, high=LONGEST)
    packing: int = knob(
        1,
        "most examples in a row; 1 gives each its own row; from 2 on an example without pairs is a "
        "whole document, or a piece of a document that is longer than a row; evaluations do not "
        "pack, and without pairs fill their rows across documents",
        low=1,
        high=64,
    )
    pairs: str = knob(
        "nsp",
        "an example is one text, or a pair with labels of nsp or sop",
        choices=("none", "nsp", "sop"),
    )
    branch_from: str = knob(
        "", "RUN@STEP: go on from this checkpoint of a run whose updates up to it are the same"
    )
    init_from: str = knob("", "a run, or another project's model, whose parameters are loaded")
    init_fresh: str = knob(
        "", "regular expression of parameter names that init_from need not have, such as ^nsp/"
    )
    init_fresh_layers: int = knob(
        0, "number of top layers that are initialised, not loaded, and with them the pooler", low=0
    )
    init_vocab: str = knob(
        "same", "remap lets init_from have another vocabulary", choices=("same", "remap")
    )
    corpus: Corpus = Corpus()
    task: Task = dataclasses.field(default_factory=Task)
    tokenizer: Tokenizer = Tokenizer()
    examples: Examples = Examples()
    masking: Masking = Masking()
    model: Model = Model()
    objectives: dict[str, Objective] = knob({n: Objective() for n in DEFAULT}, "what is trained")
    optim: Optim = Optim()
    parallel: Parallel = Parallel()
    loader: Loader = Loader()
    checkpoints: Checkpoints = Checkpoints()
    evals: dict[str, Eval] = knob({"validation": Eval()}, "evaluations by name")
    logging: Logging = Logging()

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads of the model, by the objectives that read them."""
        return tuple(OBJECTIVES[name].head or name for name in self.objectives)

    @property
    def scored(self) -> tuple[str, ...]:
        """The objectives by which an evaluation of text measures the model."""
        return (*self.heads, *(("causal_lm",) if "hybrid" in self.objectives else ()))

    @property
    def as_read(self) -> Config:
        """The config of evaluations and predictions: the objectives whose heads were trained."""
        if tuple(self.objectives) == self.heads:
            return self
        read = [Objective(weight=o.weight, shift=o.shift) for o in self.objectives.values()]
        return dataclasses.replace(self, objectives=dict(zip(self.heads, read, strict=True)))

    @property
    def masked(self) -> bool:
        """True where text is corrupted before it is read: not for labelled data or causal_lm."""
        return not self.task.source and "causal_lm" not in self.objectives
