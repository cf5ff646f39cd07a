"""Every knob of a run, declared once: type with range or choices, default, condition and meaning.

`model_knobs.py` declares the knobs of the model, and `data_knobs.py` the sections about data.
`declare.py` explains the form of a declaration.
"""

import dataclasses
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from bert_jax.config.data_knobs import Corpus, Examples, Masking, Task, Tokenizer, Unit
from bert_jax.config.declare import (
    Amount,
    Count,
    Epochs,
    Natural,
    Positive,
    Seed,
    Share,
    knob,
    section,
)
from bert_jax.config.model_knobs import LONGEST, Model
from bert_jax.config.model_knobs import SIZES as SIZES


class ObjectiveRow(NamedTuple):
    """Row of OBJECTIVES: what the config needs to know about an objective."""

    targets: str  # from "text" alone, or from "labels" of a task's data
    default: bool = False  # trained where a config names no objective; nsp and sop with their pairs
    metrics: tuple[str, ...] = ()  # of its evaluation, beside the loss
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
    "regress": ObjectiveRow("labels", metrics=("pearson", "spearman", "mse"), pooled=True),
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
COUNTED = 2**31  # updates at most
TEXT = 1_000_000  # characters of the longest text in such a line
EVALUATED = 64  # examples a step of an evaluation
MOST_ROWS = 65_536  # of a step without updates
# Places for metrics besides metrics.jsonl, each with the package that it needs; the tracker itself
# is a class of bert_jax/training/trackers.py.
TRACKERS = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


@dataclasses.dataclass(frozen=True)
class Objective:
    """One entry of `objectives`."""

    #: factor in the loss; 0 keeps head and metrics; None is 1, of replaced 50
    weight: Amount | None = knob(None, traced=True)
    labels: tuple[str, ...] = knob((), "objective=classify|tag")  #: names of the classes
    #: predict each [SEP] too, so that the model learns where a text ends
    end: bool = knob(True, "objective=causal_lm|hybrid")
    #: power of the weights; 1 bounds the likelihood, 0 weighs all predictions alike
    gamma: Share = knob(1.0, "objective=diffusion")
    #: share of the examples, and of the loss, that is causal
    share: Share = knob(0.5, "objective=hybrid", traced=True)
    #: a masked token is predicted from the place before it, as GPT-BERT does
    shift: bool = knob(False, "objective=hybrid")
    #: width of a generator trained by mlm, as a share of the encoder's; 0 is random tokens of
    #: masking.replace
    generator: Share = knob(0.0, "objective=replaced")


@dataclasses.dataclass(frozen=True)
class Optim:
    """Optimizer, schedule and clipping."""

    name: Literal["adam2018", "adamw", "lamb"] = "adamw"  #: adam2018 has no bias correction
    learning_rate: Amount = knob(1e-4, traced=True)  #: learning rate at the peak
    #: updates of linear warm-up
    warmup_steps: Annotated[int, Meta(ge=0, le=COUNTED)] = knob(
        10_000,
        "optim.warmup_fraction=None",
        traced=True,
        same_as="optim.warmup_steps",
        resets=("warmup_fraction",),
    )
    #: warm-up as a share of the steps, in place of warmup_steps
    warmup_fraction: Share | None = knob(None, traced=True, resets=("warmup_steps",))
    layer_decay: Share = 1.0  #: learning rate of a layer, as a share of the layer above
    freeze: str = ""  #: regular expression of parameters that are not trained, such as ^encoder/
    #: after warm-up; linear2018 decays from step 0; wsd after a stable phase at the peak
    schedule: Literal["linear", "linear2018", "cosine", "constant", "wsd"] = knob(
        "linear", traced=True
    )
    #: share of the steps that decay, in a line
    decay_fraction: Share = knob(0.2, "optim.schedule=wsd", traced=True)
    #: share of the peak after the last update
    final_fraction: Share = knob(0.0, "optim.schedule=linear|cosine|wsd", traced=True)
    b1: Annotated[float, Meta(ge=0, le=0.999999)] = 0.9  #: first moment
    b2: Annotated[float, Meta(ge=0, le=0.999999)] = 0.999  #: second moment
    epsilon: Annotated[float, Meta(ge=1e-30)] = 1e-06  #: added to the root of the second moment
    weight_decay: Amount = knob(0.01, traced=True)  #: decoupled, multiplied by the learning rate
    #: regular expression of parameters without weight decay; empty is none
    no_decay: str = knob(r"norm/|bias$", "optim.weight_decay>0")
    clip_norm: Amount = 1.0  #: largest global norm of the gradient; 0 never clips
    accumulation: Count = 1  #: microbatches an update; batch_size stays the same
    #: skipped updates in a row, with a non-finite gradient, before the run ends
    nonfinite_limit: Count = 5

    def stable_until(self, steps: int) -> int:
        """Return the number of updates before the decay of schedule `wsd`.

        These updates do not depend on the number of steps of the run.
        """
        return max(self.warmup_steps, steps - round(self.decay_fraction * steps))


@dataclasses.dataclass(frozen=True)
class Parallel:
    """The use of devices; `data` = -1 takes all devices that fsdp leaves."""

    #: jit over a mesh, or pmap for pure data parallelism
    step: Literal["jit", "pmap"] = knob("jit", free=True)
    data: Annotated[int, Meta(ge=-1)] = knob(-1, free=True)  #: ways the batch is split
    fsdp: Count = knob(1, free=True)  #: ways the batch, parameters and optimizer state are split
    #: runs that share a device, in turn (map) or at once (vmap, which needs prng threefry2x32);
    #: auto is map on a CPU
    arms: Literal["auto", "map", "vmap"] = knob("auto", free=True)
    distributed: bool = knob(False, free=True)  #: start jax.distributed, for several processes
    #: generator of dropout bits; auto is threefry2x32, whose bits are the same under vmap
    prng: Literal["auto", "threefry2x32", "rbg", "unsafe_rbg"] = knob("auto", "dropout")


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that are saved and kept."""

    #: steps between saves
    every: Count = knob(1000, "checkpoints.epochs=None", free=True, resets=("epochs",))
    #: epochs of a task between saves, in place of every
    epochs: Epochs | None = knob(None, "labels", free=True, resets=("every",))
    keep: Count = knob(2, free=True)  #: latest steps kept
    at: tuple[Count, ...] = knob((), free=True)  #: steps saved and kept for good, as 8,16
    #: the same, by words read: between spaces, hyphens, apostrophes, each epoch anew; as
    #: 1000000,10000000
    at_words: tuple[Count, ...] = knob((), "text", free=True)
    #: training ends after so many evaluations in a row without a better `best`; each better step
    #: is saved; 0 never
    patience: Natural = knob(0, "checkpoints.best", free=True)
    #: metric of evals.validation whose best saved step is kept; empty is none
    best: str = "mlm_loss"


@dataclasses.dataclass(frozen=True)
class Eval:
    """One evaluation during training, an entry of `evals`."""

    #: steps between evaluations; 0 only at the end
    every: Natural = knob(1000, "evals.*.epochs=None", resets=("epochs",))
    #: epochs of a task between evaluations, in place of every
    epochs: Epochs | None = knob(None, "labels", resets=("every",))
    split: str = knob("validation", "labels")  #: the split that is scored
    rate: Positive = knob(0.15, "masks")  #: masking rate of the frozen evaluation masks
    #: shares of [MASK], random token, kept in these masks
    replace: tuple[Share, Share, Share] = knob((0.8, 0.1, 0.1), "masks")
    unit: Unit = knob("token", "masks")  #: masking unit; the knobs of `masking` define it
    seed: Seed = knob(0, "text")  #: seed of evaluation pairs and masks
    #: examples a step; None: as many as a microbatch has
    batch_size: Annotated[int, Meta(ge=1, le=MOST_ROWS)] | None = EVALUATED


@dataclasses.dataclass(frozen=True)
class Logging:
    """The metrics, events and samples written while training."""

    every: Count = 10  #: steps that a line of metrics.jsonl averages over
    #: where metrics go too, as tensorboard,wandb; accounts are set by their own variables, such as
    #: WANDB_MODE
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    #: validation sentences shown with predictions; of a task, its worst mistakes
    samples: Annotated[int, Meta(ge=0, le=1000)] = knob(12, "samples", idle=0)


@dataclasses.dataclass(frozen=True)
class Config:
    """The config of one run."""

    seed: Seed = knob(0, traced=True)  #: seed of initialisation, dropout and masks
    data_seed: Seed = 0  #: seed of order, pairs and packing
    #: updates
    steps: Annotated[int, Meta(ge=1, le=COUNTED)] = knob(
        1_000_000, "epochs=None", resets=("epochs",)
    )
    #: passes over the training data
    epochs: Annotated[float, Meta(ge=0.01, le=1_000_000)] | None = knob(None, resets=("steps",))
    #: rows an update, over all devices and microbatches; each view of an example counts
    batch_size: Annotated[int, Meta(ge=1, le=1 << 20)] = 256
    sequence_length: Annotated[int, Meta(ge=8, le=LONGEST)] = 128  #: tokens a row
    #: most examples in a row; from 2 on, without pairs, an example is a document or a row-long
    #: piece of one; evaluations do not pack
    packing: Annotated[int, Meta(ge=1, le=64)] = knob(1, "text")
    #: an example is one text, or a pair with labels of nsp or sop
    pairs: Literal["none", "nsp", "sop"] = knob("nsp", "text", idle="none")
    #: RUN@STEP: go on from a checkpoint of a run with the same updates before it
    branch_from: str = ""
    init_from: str = ""  #: a run, or a model of others, whose parameters are loaded
    #: regular expression of parameters that init_from need not have, such as ^nsp/
    init_fresh: str = knob("", "init_from")
    #: top layers that are initialised, not loaded, and with them the pooler
    init_fresh_layers: Natural = knob(0, "init_from")
    #: remap lets init_from have another vocabulary
    init_vocab: Literal["same", "remap"] = knob("same", "init_from")
    corpus: Corpus = section(Corpus, "text")
    task: Task = section(Task, "labels")
    tokenizer: Tokenizer = section(Tokenizer)
    examples: Examples = section(Examples, "text")
    masking: Masking = section(Masking, "masks")
    model: Model = section(Model)
    objectives: dict[str, Objective] = section(lambda: {n: Objective() for n in DEFAULT})
    optim: Optim = section(Optim)
    parallel: Parallel = section(Parallel)
    checkpoints: Checkpoints = section(Checkpoints)
    evals: dict[str, Eval] = section(lambda: {"validation": Eval()}, free=True)
    logging: Logging = section(Logging, free=True)

    @property
    def trunk(self) -> tuple[str, int]:
        """The run and the step that `branch_from` names; ("", 0) if it is empty."""
        run, _, step = self.branch_from.rpartition("@")
        return run, int(step) if step.isdecimal() else 0

    @property
    def generator_share(self) -> float:
        """The width of the generator as a share of the encoder's; 0 without a generator."""
        return max((objective.generator for objective in self.objectives.values()), default=0.0)

    @property
    def generator(self) -> Model | None:
        """The config of the generator that `mlm` trains for objective `replaced`; None without one.

        As in ELECTRA, the generator has as many layers as the encoder, and a share of its width,
        heads and feed-forward. The generator reads the encoder's embeddings, which keep their
        width.
        """
        share = self.generator_share
        if not share:
            return None
        hidden, heads, mlp = (max(1, round(share * size)) for size in self.model.shape[1:])
        width = self.model.table_width
        return dataclasses.replace(self.model, hidden=hidden, heads=heads, mlp=mlp, embedding=width)

    @property
    def heads(self) -> tuple[str, ...]:
        """The names of the model's heads, one for each objective."""
        return tuple(OBJECTIVES[name].head or name for name in self.objectives)

    @property
    def scored(self) -> tuple[str, ...]:
        """The names of the heads whose objectives are computed in an evaluation of text."""
        if "hybrid" in self.objectives:
            return (*self.heads, "causal_lm")
        return self.heads

    @property
    def as_read(self) -> "Config":
        """The config for evaluations and predictions, with each objective named after its head.

        For example `diffusion`, which trains the head of `mlm`, becomes `mlm`. The metric of the
        best step is dropped, because it may be a loss of the objective.
        """
        if tuple(self.objectives) == self.heads:
            return self
        read = [Objective(weight=o.weight, shift=o.shift) for o in self.objectives.values()]
        checkpoints = dataclasses.replace(self.checkpoints, best="")
        objectives = dict(zip(self.heads, read, strict=True))
        return dataclasses.replace(self, objectives=objectives, checkpoints=checkpoints)

    @property
    def shifted(self) -> bool:
        """True if a masked token is predicted from the place before it."""
        return any(objective.shift for objective in self.objectives.values())

    @property
    def kind(self) -> str:
        """The name of the objective over labels, such as "classify"; empty if there is none."""
        return next((name for name in self.objectives if name in LABELLED), "")

    @property
    def labelled(self) -> bool:
        """True if the config trains on labelled data, and not on a corpus."""
        return bool(self.task.source or self.kind)

    @property
    def masked(self) -> bool:
        """True if tokens of the text are masked: not for labelled data or causal_lm."""
        return not self.labelled and "causal_lm" not in self.objectives
