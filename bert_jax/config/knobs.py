"""Every knob of a run, once: type with range or choices, default, meaning and condition.

`model_knobs.py` declares the knobs of the model, `data_knobs.py` the sections about data, and
`run_knobs.py` the sections about batches in memory, checkpoints, evaluations and metrics.
`declare.py` says how a declaration reads.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from bert_jax.config.data_knobs import Corpus, Examples, Masking, Task, Tokenizer
from bert_jax.config.declare import Amount, Count, Natural, Seed, Share, knob, section
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

    #: factor in the loss; 0 keeps head and metrics; None is 1 where `pairs` allows, and 50 of
    #: replaced, as ELECTRA has it
    weight: Amount | None = knob(None, traced=True)
    #: names of the classes
    labels: tuple[str, ...] = knob((), when="objective=classify|tag")
    #: predict each [SEP] too, so that the model learns where a text ends
    end: bool = knob(True, when="objective=causal_lm|hybrid")
    #: power of the weights; 1 bounds the likelihood, 0 weighs all predictions alike
    gamma: Share = knob(1.0, when="objective=diffusion")
    #: share of the examples, and of the loss, that is causal
    share: Share = knob(0.5, when="objective=hybrid", traced=True)
    #: a masked token is predicted from the place before it, as GPT-BERT does
    shift: bool = knob(False, when="objective=hybrid")
    #: tokens are replaced by a generator that mlm trains beside the encoder, with
    #: its layers, its embeddings and this share of its width; 0 is none, and the random
    #: tokens of masking.replace
    generator: Share = knob(0.0, when="objective=replaced")


@dataclasses.dataclass(frozen=True)
class Optim:
    """Optimizer, schedule and clipping."""

    #: adam2018 has no bias correction
    name: Literal["adam2018", "adamw", "lamb"] = "adamw"
    #: learning rate at the peak
    learning_rate: Amount = knob(1e-4, traced=True)
    #: updates of linear warm-up
    warmup_steps: Annotated[int, Meta(ge=0, le=COUNTED)] = knob(
        10_000,
        when="optim.warmup_fraction=None",
        traced=True,
        same_as="optim.warmup_steps",
        resets=("warmup_fraction",),
    )
    #: warm-up as a share of the steps, in place of warmup_steps
    warmup_fraction: Share | None = knob(None, traced=True, resets=("warmup_steps",))
    #: learning rate of a layer, as a share of that of the layer above
    layer_decay: Share = 1.0
    #: regular expression of parameters that are not trained, such as ^encoder/; empty is none
    freeze: str = ""
    #: after warm-up; linear2018 decays from step 0; wsd after a stable phase at the peak
    schedule: Literal["linear", "linear2018", "cosine", "constant", "wsd"] = knob(
        "linear", traced=True
    )
    #: share of the steps that decay, in a line; warm-up is not among them
    decay_fraction: Share = knob(0.2, when="optim.schedule=wsd", traced=True)
    #: share of the peak that the schedule reaches after the last update, as published
    #: schedules do
    final_fraction: Share = knob(0.0, when="optim.schedule=linear|cosine|wsd", traced=True)
    #: first moment
    b1: Annotated[float, Meta(ge=0, le=0.999999)] = 0.9
    #: second moment
    b2: Annotated[float, Meta(ge=0, le=0.999999)] = 0.999
    #: added to the root of the second moment
    epsilon: Annotated[float, Meta(ge=1e-30)] = 1e-06
    #: decoupled, multiplied by the learning rate
    weight_decay: Amount = knob(0.01, traced=True)
    #: regular expression of parameters without weight decay; must match some; empty is none
    no_decay: str = knob(r"norm/|bias$", when="optim.weight_decay>0")
    #: largest global norm of the gradient; 0 never clips
    clip_norm: Amount = 1.0
    #: microbatches an update; batch_size stays the same
    accumulation: Count = 1
    #: updates in a row with a gradient that is not finite, all skipped, before the run ends
    nonfinite_limit: Count = 5

    def stable_until(self, steps: int) -> int:
        """Return the number of updates before the decay of `wsd`, which depend on no later one."""
        return max(self.warmup_steps, steps - round(self.decay_fraction * steps))


@dataclasses.dataclass(frozen=True)
class Parallel:
    """Devices. `data` = -1 takes the devices that fsdp leaves."""

    #: jit over a mesh, or pmap for pure data parallelism
    step: Literal["jit", "pmap"] = knob("jit", free=True)
    #: ways the batch is split
    data: Annotated[int, Meta(ge=-1)] = knob(-1, free=True)
    #: ways the batch, parameters and optimizer state are split
    fsdp: Count = knob(1, free=True)
    #: runs that train together on one device: one after the other (map) or all at once
    #: (vmap), which needs the prng threefry2x32; auto is map on a CPU or with another prng,
    #: else vmap
    arms: Literal["auto", "map", "vmap"] = knob("auto", free=True)
    #: several processes: start jax.distributed before anything else
    distributed: bool = knob(False, free=True)
    #: generator of dropout bits; masks always use threefry; auto is threefry2x32, which alone
    #: gives runs under vmap the bits of runs alone
    prng: Literal["auto", "threefry2x32", "rbg", "unsafe_rbg"] = knob("auto", when="dropout")


@dataclasses.dataclass(frozen=True)
class Config:
    """The config of one run."""

    #: seed of initialisation, dropout and masks
    seed: Seed = knob(0, traced=True)
    #: seed of order, pairs and packing
    data_seed: Seed = 0
    #: updates
    steps: Annotated[int, Meta(ge=1, le=COUNTED)] = knob(
        1_000_000, when="epochs=None", resets=("epochs",)
    )
    #: passes over the training data, in place of steps; of text at most so many
    epochs: Annotated[float, Meta(ge=0.01, le=1_000_000)] | None = knob(None, resets=("steps",))
    #: examples an update, over all devices and microbatches; of an example that is read in
    #: several views (masking.prediction_rate), each counts
    batch_size: Annotated[int, Meta(ge=1, le=1 << 20)] = 256
    #: tokens a row
    sequence_length: Annotated[int, Meta(ge=8, le=LONGEST)] = 128
    #: most examples in a row; 1 gives each its own row; from 2 on an example without pairs is
    #: a whole document, or a piece of a document that is longer than a row; evaluations do
    #: not pack, and without pairs fill their rows across documents
    packing: Annotated[int, Meta(ge=1, le=64)] = knob(1, when="text")
    #: an example is one text, or a pair with labels of nsp or sop
    pairs: Literal["none", "nsp", "sop"] = knob("nsp", when="text", idle="none")
    #: RUN@STEP: go on from this checkpoint of a run whose updates up to it are the same
    branch_from: str = ""
    #: a run, or another project's model, whose parameters are loaded
    init_from: str = ""
    #: regular expression of parameter names that init_from need not have, such as ^nsp/
    init_fresh: str = knob("", when="init_from")
    #: number of top layers that are initialised, not loaded, and with them the pooler
    init_fresh_layers: Natural = knob(0, when="init_from")
    #: remap lets init_from have another vocabulary
    init_vocab: Literal["same", "remap"] = knob("same", when="init_from")
    corpus: Corpus = section(Corpus, when="text")
    task: Task = section(Task, when="labels")
    tokenizer: Tokenizer = section(Tokenizer)
    examples: Examples = section(Examples, when="text")
    masking: Masking = section(Masking, when="masks")
    model: Model = section(Model)
    objectives: dict[str, Objective] = section(lambda: {n: Objective() for n in DEFAULT})
    optim: Optim = section(Optim)
    parallel: Parallel = section(Parallel)
    loader: Loader = section(Loader, free=True)
    checkpoints: Checkpoints = section(Checkpoints)
    evals: dict[str, Eval] = section(lambda: {"validation": Eval()}, free=True)
    logging: Logging = section(Logging, free=True)

    @property
    def trunk(self) -> tuple[str, int]:
        """The run that `branch_from` names and its step; "" and 0 if it names no run."""
        run, _, step = self.branch_from.rpartition("@")
        return run, int(step) if step.isdecimal() else 0

    @property
    def generator_share(self) -> float:
        """The width of the generator as a share of the encoder's; 0 without a generator."""
        return max((objective.generator for objective in self.objectives.values()), default=0.0)

    @property
    def generator(self) -> Model | None:
        """The model that `mlm` trains as the generator of objective `replaced`, as ELECTRA does.

        The generator has as many layers as the encoder, and a share of its width, heads and
        feed-forward. It reads the encoder's embeddings, which keep their width.
        """
        model, part = self.model, self.generator_share
        if not part:
            return None
        assert model.hidden is not None
        assert model.heads is not None
        assert model.mlp is not None
        return dataclasses.replace(
            model,
            hidden=max(1, round(part * model.hidden)),
            heads=max(1, round(part * model.heads)),
            mlp=max(1, round(part * model.mlp)),
            embedding=model.table_width,
        )

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
