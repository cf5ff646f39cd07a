"""Rules between knobs, checked when a config is resolved, before anything is prepared."""

from __future__ import annotations

import logging
import re

from bert_jax.config import abilities
from bert_jax.config.conditions import kind_of, list_unit_knobs
from bert_jax.config.knobs import LABELLED, OBJECTIVES, PRETRAINING, Config
from bert_jax.errors import ConfigError, need
from bert_jax.system import opening

logger = logging.getLogger(__name__)

BYTES = 261  # pieces of every bpe vocabulary: the bytes and the special tokens
OF_TEXT = ("corpus", "evals", "examples", "pairs", "sequence_length")  # read by evaluations
OF_LABELS = ("task", "objectives")  # read by those of labelled data


def check(c: Config) -> None:
    """Raise a ConfigError for the first rule that a derived config breaks."""
    from bert_jax.config import mask_rules  # loads numpy, which --help does without

    text = (_paths, _initial, _steps, _task, _tokenizer)
    for rules in (*text, _model, mask_rules.check, _optim, _devices, _evaluation):
        rules(c)


def in_evaluation(path: str, read: tuple[str, ...] = OF_TEXT + OF_LABELS) -> None:
    """Refuse a change of a knob that an evaluation does not read."""
    section, _, name = path.partition(".")
    if section in read or (section == "masking" and name in list_unit_knobs()):
        return
    reasons = {
        **dict.fromkeys(("model", "tokenizer", "objectives"), "it is the checkpoint's own"),
        "masking": "its masks are those of evals.validation.rate, replace, unit and seed",
        "parallel": "it takes all devices",
        "batch_size": "it counts the rows of an update",
    }
    rows = "--batch-size=8 sets the rows of a step, in a Suite batch_size=8"
    raise ConfigError(
        f"config.{path} does nothing in an evaluation: "
        f"{reasons.get(section, 'only training reads it')}",
        rows if path == "batch_size" else f"leave it out: it reads {', '.join(read)}",
    )


def trainable(c: Config) -> None:
    """Raise a ConfigError for a config that can be evaluated, but not trained.

    A model that is not trained may have no objective, or one over labels without a task.
    """
    need(
        bool(c.objectives),
        "config.objectives is empty",
        "keep mlm, or a pair objective with its pairs",
    )
    names = list(c.objectives)
    need(
        any(objective.weight for objective in c.objectives.values()),
        f"the weight of every objective is 0 ({', '.join(names)}): nothing would be trained",
        f"--config.objectives.{names[0]}.weight=1; weight 0 keeps a head and its metrics while "
        "another objective trains",
    )
    for name in c.objectives:
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
    named = m.attention not in ("auto", "einsum")
    dropped = abilities.DROPOUT if named and m.attention_dropout else ""
    full = not c.task.source or c.task.pad == "full"  # else rows are as long as their batch's
    obstacle = dropped or (abilities.of_length(m.attention, c.sequence_length) if full else "")
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


def _task(c: Config) -> None:
    t = c.task
    if not t.source:
        return
    labelled = [name for name in c.objectives if name in LABELLED]
    need(
        len(c.objectives) == len(labelled) == 1,
        "a task trains one objective over labels, and config.objectives has "
        f"{', '.join(c.objectives) or 'none'}",
        f"keep one of: {', '.join(LABELLED)}",
    )
    kind = labelled[0]
    need(
        t.source.startswith(("files:", "tfds:")),
        f"task.source = {t.source!r} says no kind of source",
        f"--config.task.source=files:{t.source} for a file, a folder or a pattern with {{split}}; "
        "or tfds:NAME",
    )
    need(
        kind != "choice" or bool(t.options),
        "task.options is empty",
        "name the columns, or the one that lists them",
    )
    need(
        not t.values or kind == "choice" or len(t.values) == len(c.objectives[kind].labels),
        f"task.values has {len(t.values)} and objectives.{kind}.labels "
        f"{len(c.objectives[kind].labels)} entries",
        "one value for each label, in the same order",
    )


def _expression(knob: str, text: str, example: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"{knob} = {text!r} is no regular expression: {error}", f"{example!r} is one"
        ) from error


def _model(c: Config) -> None:
    m = c.model
    assert m.hidden is not None
    assert m.heads is not None
    for name in set(c.objectives) & {"classify", "tag"}:
        need(
            bool(c.objectives[name].labels or c.task.source),
            f"objectives.{name}.labels is empty, and no labelled data says them",
            "--config.task.source=files:PATTERN or tfds:NAME, or name the classes, in order",
        )
    need(
        m.causal or "causal_lm" not in c.objectives,
        "objectives.causal_lm would see the tokens it predicts",
        "--config.model.causal=true",
    )
    need(
        m.hidden % m.heads == 0,
        f"model.hidden = {m.hidden} is not divisible by model.heads = {m.heads}",
        "change one",
    )
    assert m.layers is not None
    need(
        m.features <= m.layers,
        f"model.features = {m.features} exceeds model.layers = {m.layers}",
        "lower it",
    )
    need(
        not m.scan or m.can_scan,
        "model.scan = True: layers differ (by model.layer_weights, first_norm, global_every), or "
        "several are read (model.features)",
        "--config.model.scan=false",
    )
    obstacle = abilities.of_model(m.attention, m)
    need(
        m.attention == "auto" or not obstacle,
        f"model.attention = {m.attention!r}: {obstacle}",
        abilities.HINT,
    )
    rotary = m.position == "rotary"
    need(
        not rotary or (m.hidden // m.heads) % 2 == 0,
        "rotary positions need an even head width",
        "change model.heads",
    )
    need(
        m.position != "relative" or m.position_buckets // 2 < m.max_positions - 1,
        f"model.position_buckets = {m.position_buckets}: half of them reach model.max_positions = "
        f"{m.max_positions}",
        "lower --config.model.position_buckets",
    )
    need(
        c.sequence_length <= m.longest,
        f"sequence_length = {c.sequence_length} exceeds model.max_positions = {m.max_positions}"
        + (f" less model.first_position = {m.first_position}" if m.first_position else ""),
        "raise --config.model.max_positions",
    )


def _tokenizer(c: Config) -> None:
    t = c.tokenizer
    need(
        bool(t.path) or t.kind != "bpe" or t.vocab_size > BYTES,
        f"tokenizer.vocab_size = {t.vocab_size} leaves bpe no piece of two bytes",
        f"more than {BYTES}: every byte and 5 special tokens are pieces too",
    )


def _paths(c: Config) -> None:
    """Refuse paths that no file system of this machine has, before anything is read or written."""
    paths = {
        "corpus.cache": c.corpus.cache,
        "tokenizer.path": c.tokenizer.path,
        "init_from": c.init_from,
        "branch_from": c.trunk[0],
    }
    if c.corpus.source == "files":
        paths["corpus.path"] = c.corpus.path
    for knob, path in paths.items():
        opening.local(path, f"config.{knob}")


def _initial(c: Config) -> None:
    assert c.model.layers is not None
    need(
        c.init_fresh_layers <= c.model.layers,
        f"init_fresh_layers = {c.init_fresh_layers} exceeds model.layers = {c.model.layers}",
        "lower it",
    )
    _expression("init_fresh", c.init_fresh, "^nsp/")


def _steps(c: Config) -> None:
    """Refuse steps of a run that it never makes."""
    late = [step for step in c.checkpoints.at if step > c.steps]
    need(
        not late,
        f"checkpoints.at has {late[:1]}, and the run ends at step {c.steps}",
        "leave it out, or raise steps",
    )
    run, step = c.trunk
    need(
        not c.branch_from or bool(run and step),
        f"branch_from = {c.branch_from!r} is not RUN@STEP",
        "--config.branch_from=runs/trunk@800",
    )
    need(
        step < c.steps,
        f"branch_from = {c.branch_from!r} leaves nothing to train: the run ends at step {c.steps}",
        "branch off earlier, or raise steps",
    )


def _optim(c: Config) -> None:
    o = c.optim
    _expression("optim.no_decay", o.no_decay, "norm/|bias$")
    _expression("optim.freeze", o.freeze, "^encoder/")
    need(
        c.batch_size % o.accumulation == 0,
        f"batch_size = {c.batch_size} is not divisible by optim.accumulation = {o.accumulation}",
        "each microbatch holds batch_size / accumulation rows",
    )


def _devices(c: Config) -> None:
    p = c.parallel
    need(
        p.step != "pmap" or p.fsdp == 1,
        "parallel.step = 'pmap' splits only data",
        "use jit",
    )
    need(
        p.data != 0,
        "parallel.data = 0 leaves no device to train on",
        "-1 takes the devices that fsdp leaves",
    )


def _evaluation(c: Config) -> None:
    best = c.checkpoints.best
    for name in c.evals:
        need(
            re.fullmatch(r"\w+", name) is not None,
            f"config.evals has {name!r}",
            "letters, digits and _ only",
        )
    need(
        "validation" in c.evals or not best,
        "checkpoints.best needs evals.validation",
        "set it empty",
    )
    metrics = [
        f"{name}_{measure}" for name in c.scored for measure in ("loss", *OBJECTIVES[name].metrics)
    ]
    need(
        not best or best in metrics or bool(kind_of(c)),  # labelled data: training/data.py
        f"checkpoints.best = {best!r} is no metric of evals.validation",
        f"empty, or one of: {', '.join(metrics)}",
    )
    need(
        not c.evals or c.corpus.validation_fraction > 0 or bool(c.task.source),
        f"corpus.validation_fraction = 0 leaves evals.{next(iter(c.evals), '')} nothing to read",
        "raise it, or set evals = {} and checkpoints.best = '' in the config file",
    )
