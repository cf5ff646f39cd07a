"""Rules between knobs, checked when a config is resolved, before anything is prepared."""

from __future__ import annotations

import logging
import re

from bert_jax.config import abilities
from bert_jax.config.conditions import list_unit_knobs
from bert_jax.config.knobs import LABELLED, OBJECTIVES, PRETRAINING, Config
from bert_jax.errors import ConfigError, need
from bert_jax.system import opening

logger = logging.getLogger(__name__)

BYTES = 261  # pieces of every bpe vocabulary: the bytes and the special tokens
OF_TEXT = ("corpus", "evals", "examples", "pairs", "sequence_length")  # read by evaluations
OF_LABELS = ("task", "objectives")  # read by evaluations of labelled data


def check(c: Config) -> None:
    """Raise a ConfigError for the first rule that a derived config breaks."""
    from bert_jax.config import mask_rules  # loads numpy, which --help does without

    for rules in (_paths, _run, _task, _model, mask_rules.check, _evaluation):
        rules(c)


def in_evaluation(path: str, read: tuple[str, ...] = OF_TEXT + OF_LABELS) -> None:
    """Refuse a change of a knob that an evaluation does not read."""
    section, _, name = path.partition(".")
    if section in read or (section == "masking" and name in list_unit_knobs()):
        return
    reason, hint = "only training reads it", f"leave it out: it reads {', '.join(read)}"
    if section in ("model", "tokenizer", "objectives"):
        reason = "it is the checkpoint's own"
    elif section == "masking":
        reason = "its masks are those of evals.validation.rate, replace, unit and seed"
    elif path == "batch_size":
        hint = "--batch-size=8 sets the rows of a step, in a Suite batch_size=8"
    raise ConfigError(f"config.{path} does nothing in an evaluation: {reason}", hint)


def trainable(c: Config) -> None:
    """Raise a ConfigError for a config that can be evaluated, but not trained.

    A model that is not trained may have no objective, or one over labels without a task.
    """
    names = list(c.objectives)
    need(bool(names), "config.objectives is empty", "keep mlm, or a pair objective with its pairs")
    need(
        any(objective.weight for objective in c.objectives.values()),
        f"the weight of every objective is 0 ({', '.join(names)}): nothing would be trained",
        f"--config.objectives.{names[0]}.weight=1",
    )
    for name in names:
        need(
            name in PRETRAINING or bool(c.task.source),
            f"objectives.{name} needs labelled data, and a corpus has none",
            "set config.task.source, as configs/finetune.py does",
        )
    need(
        not c.task.source or bool(c.init_from or c.tokenizer.path),
        "a task has no vocabulary of its own",
        "name the model it starts from: --config.init_from=DIR",
    )
    m = c.model
    full = not c.task.source or c.task.pad == "full"  # else rows are as long as their batch's
    obstacle = abilities.of_length(m.attention, c.sequence_length) if full else ""
    if m.attention_dropout and m.attention not in ("auto", "einsum"):
        obstacle = abilities.DROPOUT
    need(not obstacle, f"model.attention = {m.attention!r}: {obstacle}", abilities.HINT)
    need(
        c.parallel.arms != "vmap" or c.parallel.prng in ("auto", "threefry2x32"),
        f"parallel.arms = 'vmap' with parallel.prng = {c.parallel.prng!r} would drop other "
        "elements than a run alone",
        "--config.parallel.prng=threefry2x32, or --config.parallel.arms=map",
    )


def warn(*several: Config) -> None:
    """Warn of what is allowed in configs and maybe not intended, once where several are alike."""
    for steps, warmup in dict.fromkeys((c.steps, c.optim.warmup_steps) for c in several):
        if warmup > steps:
            peak = f"the learning rate ends at {(steps - 1) / warmup:.2g} of its peak"
            logger.warning(f"optim.warmup_steps = {warmup} exceeds steps = {steps}: {peak}")


# --- the rules ------------------------------------------------------------------------------------


def _paths(c: Config) -> None:
    """Refuse paths in an object store, and texts that are no regular expression."""
    paths = {"corpus.cache": c.corpus.cache, "tokenizer.path": c.tokenizer.path}
    paths |= {"init_from": c.init_from, "branch_from": c.trunk[0]}
    if c.corpus.source == "files":
        paths["corpus.path"] = c.corpus.path
    for knob, path in paths.items():
        opening.local(path, f"config.{knob}")
    patterns = {"init_fresh": c.init_fresh, "optim.no_decay": c.optim.no_decay}
    for knob, text in (patterns | {"optim.freeze": c.optim.freeze}).items():
        try:
            re.compile(text)
        except re.error as error:
            said = f"{knob} = {text!r} is no regular expression: {error}"
            raise ConfigError(said, "'^encoder/' is one") from error


def _run(c: Config) -> None:
    """Check steps, batches, devices and the start of a run."""
    run, step = c.trunk
    fork = f"branch_from = {c.branch_from!r}"
    example = "--config.branch_from=runs/trunk@800"
    need(not c.branch_from or bool(run and step), f"{fork} is not RUN@STEP", example)
    need(step < c.steps, f"{fork} is not before the last of {c.steps} steps", "raise steps")
    last = max(c.checkpoints.at, default=0)
    need(last <= c.steps, f"checkpoints.at = {last} is after {c.steps} steps", "raise steps")
    fresh, layers = c.init_fresh_layers, c.model.shape[0]
    said = f"init_fresh_layers = {fresh} exceeds model.layers = {layers}"
    need(fresh <= layers, said, "lower it")
    parts = c.optim.accumulation
    need(
        c.batch_size % parts == 0,
        f"batch_size = {c.batch_size} is not divisible by optim.accumulation = {parts}",
        "each microbatch holds batch_size / accumulation rows",
    )
    p, t = c.parallel, c.tokenizer
    need(p.step != "pmap" or p.fsdp == 1, "parallel.step = 'pmap' splits only data", "use jit")
    need(p.data != 0, "parallel.data = 0 leaves no device", "-1 takes what fsdp leaves")
    need(
        bool(t.path) or t.kind != "bpe" or t.vocab_size > BYTES,
        f"tokenizer.vocab_size = {t.vocab_size} leaves bpe no piece of two bytes",
        f"more than {BYTES}: every byte and 5 special tokens are pieces too",
    )


def _task(c: Config) -> None:
    t, names = c.task, ", ".join(c.objectives) or "none"
    if not t.source:
        return
    kind = c.kind
    need(
        list(c.objectives) == [kind],
        f"a task trains one objective over labels, and config.objectives has {names}",
        f"keep one of: {', '.join(LABELLED)}",
    )
    need(
        t.source.startswith(("files:", "tfds:")),
        f"task.source = {t.source!r} says no kind of source",
        f"--config.task.source=files:{t.source}, or tfds:NAME",
    )
    need(kind != "choice" or bool(t.options), "task.options is empty", "name the columns")
    labels = c.objectives[kind].labels
    need(
        not t.values or kind not in ("classify", "tag") or len(t.values) == len(labels),
        f"task.values has {len(t.values)} and objectives.{kind}.labels {len(labels)} entries",
        "one value for each label, in the same order",
    )


def _model(c: Config) -> None:
    m = c.model
    layers, hidden, heads, _ = m.shape
    for name in set(c.objectives) & {"classify", "tag"}:
        need(
            bool(c.objectives[name].labels or c.task.source),
            f"objectives.{name}.labels is empty, and no labelled data says them",
            "--config.task.source=files:PATTERN or tfds:NAME, or name the classes, in order",
        )
    blind = m.causal or "causal_lm" not in c.objectives
    said = "objectives.causal_lm would see the tokens it predicts"
    need(blind, said, "--config.model.causal=true")
    width, rest = divmod(hidden, heads)
    said = f"model.hidden = {hidden} is not divisible by model.heads = {heads}"
    need(not rest, said, "change one")
    even = m.position != "rotary" or width % 2 == 0
    need(even, "rotary positions need an even head width", "change model.heads")
    said = f"model.features = {m.features} exceeds model.layers = {layers}"
    need(m.features <= layers, said, "lower it")
    need(
        not m.scan or m.can_scan,
        "model.scan = True: layers differ (by model.layer_weights, first_norm, global_every), or "
        "several are read (model.features)",
        "--config.model.scan=false",
    )
    obstacle = abilities.of_model(m.attention, m)
    said = f"model.attention = {m.attention!r}: {obstacle}"
    need(m.attention == "auto" or not obstacle, said, abilities.HINT)
    need(
        m.position != "relative" or m.position_buckets // 2 < m.max_positions - 1,
        f"half of model.position_buckets = {m.position_buckets} reach model.max_positions = "
        f"{m.max_positions}",
        "lower --config.model.position_buckets",
    )
    need(
        c.sequence_length <= m.longest,
        f"sequence_length = {c.sequence_length} exceeds model.max_positions = {m.max_positions}"
        + (f" less model.first_position = {m.first_position}" if m.first_position else ""),
        "raise --config.model.max_positions",
    )


def _evaluation(c: Config) -> None:
    best, parts = c.checkpoints.best, "letters, digits and _ only"
    for name in c.evals:
        need(re.fullmatch(r"\w+", name) is not None, f"config.evals has {name!r}", parts)
    need(
        "validation" in c.evals or not best,
        "checkpoints.best needs evals.validation",
        "set it empty",
    )
    measures = {name: ("loss", *OBJECTIVES[name].metrics) for name in c.scored}
    metrics = [f"{name}_{measure}" for name, listed in measures.items() for measure in listed]
    need(
        not best or best in metrics or bool(c.kind),  # labelled data: training/data.py
        f"checkpoints.best = {best!r} is no metric of evals.validation",
        f"empty, or one of: {', '.join(metrics)}",
    )
    need(
        not c.evals or c.corpus.validation_fraction > 0 or bool(c.task.source),
        f"corpus.validation_fraction = 0 leaves evals.{next(iter(c.evals), '')} nothing to read",
        "raise it, or set evals = {} and checkpoints.best = '' in the config file",
    )
