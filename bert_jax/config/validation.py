"""Check the rules between knobs when a config is resolved, before anything is prepared."""

import logging
import math
import re

from bert_jax.config import knobs
from bert_jax.config.conditions import list_unit_knobs, list_units
from bert_jax.config.knobs import LABELLED, OBJECTIVES, PRETRAINING, Config
from bert_jax.errors import ConfigError, need
from bert_jax.masking import drawn_quotas, rates
from bert_jax.system import opening

logger = logging.getLogger(__name__)

BYTES = 261  # pieces of every bpe vocabulary: the bytes and the special tokens
OF_TEXT = ("corpus", "evals", "examples", "pairs", "sequence_length")  # read by evaluations
OF_LABELS = ("task", "objectives")  # read by evaluations of labelled data
SOURCES = "--config.task.source=files:PATTERN or tfds:NAME"
CUDNN_WIDEST = 128  # width of a head, for cudnn on any GPU
SPLASH_BLOCK = 128  # positions that splash computes at once
ATTENTION_HINT = "--config.model.attention=auto takes what can"
NO_DROPOUT = "it cannot drop probabilities: --config.model.attention_dropout=0"
DIFFUSION_LONGEST = 2_048  # tokens of a row at most, under objective diffusion


def check_rules(c: Config) -> None:
    """Raise a ConfigError for the first rule that a config breaks.

    Dependent values of the config are filled in before.
    """
    _check_paths(c)
    _check_run(c)
    _check_task(c)
    _check_model(c)
    _check_masks(c)
    _check_evaluation(c)


def check_evaluation(path: str, read: tuple[str, ...] = OF_TEXT + OF_LABELS) -> None:
    """Refuse to change a knob for an evaluation if evaluations do not read it."""
    section, _, name = path.partition(".")
    if section in read or (section == "masking" and name in list_unit_knobs()):
        return
    reason = "only training reads it"
    hint = f"leave it out: it reads {', '.join(read)}"
    if section in ("model", "tokenizer", "objectives"):
        reason = "it is the checkpoint's own"
    elif section == "masking":
        reason = "its masks are those of evals.validation.rate, replace, unit and seed"
    elif path == "batch_size":
        hint = "--batch-size=8 sets the rows of a step, in a Suite batch_size=8"
    raise ConfigError(f"config.{path} does nothing in an evaluation: {reason}", hint)


def check_trainable(c: Config) -> None:
    """Raise a ConfigError for a config that can be evaluated, but not trained.

    Such a config may have no objective, or an objective over labels without labelled data.
    """
    names, m = list(c.objectives), c.model
    need(bool(names), "config.objectives is empty", "keep mlm, or a pair objective with its pairs")
    weights = [objective.weight for objective in c.objectives.values()]
    said = f"the weight of every objective is 0 ({', '.join(names)}): nothing would be trained"
    need(any(weights), said, f"--config.objectives.{names[0]}.weight=1")
    text = bool(c.task.source) or all(name in PRETRAINING for name in names)
    said = f"objectives.{c.kind} needs labelled data, and a corpus has none"
    need(text, said, "set config.task.source, as configs/finetune.py does")
    words = not c.task.source or bool(c.init_from or c.tokenizer.path)
    need(words, "a task has no vocabulary of its own", "name its model: --config.init_from=DIR")
    full = not c.task.source or c.task.pad == "full"  # else rows are as long as their batch's
    obstacle = explain_unfit_length(m.attention, c.sequence_length) if full else ""
    if m.attention_dropout and m.attention not in ("auto", "einsum"):
        obstacle = NO_DROPOUT
    need(not obstacle, f"model.attention = {m.attention!r}: {obstacle}", ATTENTION_HINT)
    prng = c.parallel.prng
    said = f"parallel.arms = 'vmap' with parallel.prng = {prng!r} would drop other elements than a "
    said += "run alone"
    same = c.parallel.arms != "vmap" or prng in ("auto", "threefry2x32")
    need(same, said, "--config.parallel.prng=threefry2x32, or --config.parallel.arms=map")


def warn_of_warmup(*several: Config) -> None:
    """Warn if a run ends during its warm-up; runs with the same lengths give one warning."""
    for steps, warmup in dict.fromkeys((c.steps, c.optim.warmup_steps) for c in several):
        if warmup > steps:
            peak = f"the learning rate ends at {(steps - 1) / warmup:.2g} of its peak"
            logger.warning(f"optim.warmup_steps = {warmup} exceeds steps = {steps}: {peak}")


def warn_of_lost_best(c: Config) -> None:
    """Warn if validation runs at steps that are not saved, so that the best of them is lost.

    With patience each better step is saved.
    """
    saves = c.checkpoints
    every = c.evals["validation"].every if saves.best and not saves.patience else 0
    if every < c.steps and every % saves.every:
        logger.warning(
            f"evals.validation.every = {every} and checkpoints.every = {saves.every}: "
            "the best step may be one that is not saved"
        )


# --- the rules ------------------------------------------------------------------------------------


def _check_paths(c: Config) -> None:
    """Refuse paths in an object store, and invalid regular expressions."""
    paths = {"corpus.cache": c.corpus.cache, "tokenizer.path": c.tokenizer.path}
    paths |= {"init_from": c.init_from, "branch_from": c.trunk[0]}
    if c.corpus.source == "files":
        paths["corpus.path"] = c.corpus.path
    for knob, path in paths.items():
        opening.check_local(path, f"config.{knob}")
    patterns = {"init_fresh": c.init_fresh, "optim.no_decay": c.optim.no_decay}
    for knob, text in (patterns | {"optim.freeze": c.optim.freeze}).items():
        try:
            re.compile(text)
        except re.error as error:
            said = f"{knob} = {text!r} is no regular expression: {error}"
            raise ConfigError(said, "'^encoder/' is one") from error


def _check_run(c: Config) -> None:
    """Check steps, batch sizes, devices, and the trunk or model that a run begins with."""
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
    said = f"batch_size = {c.batch_size} is not divisible by optim.accumulation = {parts}"
    need(c.batch_size % parts == 0, said, "each microbatch holds batch_size / accumulation rows")
    p, t = c.parallel, c.tokenizer
    need(p.step != "pmap" or p.fsdp == 1, "parallel.step = 'pmap' splits only data", "use jit")
    enough = bool(t.path) or t.kind != "bpe" or t.vocab_size > BYTES
    said = f"tokenizer.vocab_size = {t.vocab_size} leaves bpe no piece of two bytes"
    need(enough, said, f"more than {BYTES}: every byte and 5 special tokens are pieces too")


def _check_task(c: Config) -> None:
    t, kind = c.task, c.kind
    if not t.source:
        return
    said = "a task trains one objective over labels, and config.objectives has "
    said += ", ".join(c.objectives) or "none"
    need(list(c.objectives) == [kind], said, f"keep one of: {', '.join(LABELLED)}")
    said = f"task.source = {t.source!r} says no kind of source"
    known = t.source.startswith(("files:", "tfds:"))
    need(known, said, f"--config.task.source=files:{t.source}, or tfds:NAME")
    need(kind != "choice" or bool(t.options), "task.options is empty", "name the columns")
    labels = c.objectives[kind].labels
    said = f"task.values has {len(t.values)} and objectives.{kind}.labels {len(labels)} entries"
    fits = not t.values or kind not in ("classify", "tag") or len(t.values) == len(labels)
    need(fits, said, "one value for each label, in the same order")


def _check_model(c: Config) -> None:
    m = c.model
    layers, hidden, heads, _ = m.shape
    for name in set(c.objectives) & {"classify", "tag"}:
        said = f"objectives.{name}.labels is empty, and no labelled data says them"
        named = bool(c.objectives[name].labels or c.task.source)
        need(named, said, f"{SOURCES}, or name the classes, in order")
    said = "objectives.causal_lm would see the tokens it predicts"
    need(m.causal or "causal_lm" not in c.objectives, said, "--config.model.causal=true")
    said = f"model.hidden = {hidden} is not divisible by model.heads = {heads}"
    need(hidden % heads == 0, said, "change one")
    even = m.position != "rotary" or hidden // heads % 2 == 0
    need(even, "rotary positions need an even head width", "change model.heads")
    said = f"model.features = {m.features} exceeds model.layers = {layers}"
    need(m.features <= layers, said, "lower it")
    said = "model.scan = True: layers differ (by model.layer_weights, first_norm, global_every), "
    said += "or several are read (model.features)"
    need(not m.scan or m.can_scan, said, "--config.model.scan=false")
    obstacle = explain_unfit_model(m.attention, m)
    said = f"model.attention = {m.attention!r}: {obstacle}"
    need(m.attention == "auto" or not obstacle, said, ATTENTION_HINT)
    buckets, most = m.position_buckets, m.max_positions
    said = f"half of model.position_buckets = {buckets} reach model.max_positions = {most}"
    need(m.position != "relative" or buckets // 2 < most - 1, said, "lower position_buckets")
    said = f"sequence_length = {c.sequence_length} exceeds model.max_positions = {most}"
    if m.first_position:
        said += f" less model.first_position = {m.first_position}"
    need(c.sequence_length <= m.longest, said, "lower it, or raise --config.model.max_positions")


def _check_evaluation(c: Config) -> None:
    best, names = c.checkpoints.best, list(c.evals)
    for name in names:
        is_word = re.fullmatch(r"\w+", name) is not None
        need(is_word, f"config.evals has {name!r}", "letters, digits and _ only")
    kept = "validation" in names or not best
    need(kept, "checkpoints.best needs evals.validation", "set it empty")
    measures = {name: ("loss", *OBJECTIVES[name].metrics) for name in c.scored}
    metrics = [f"{name}_{measure}" for name, listed in measures.items() for measure in listed]
    known = not best or best in metrics or bool(c.kind)  # labelled data: training/data.py
    said = f"checkpoints.best = {best!r} is no metric of evals.validation"
    need(known, said, f"empty, or one of: {', '.join(metrics)}")
    held = not names or c.corpus.validation_fraction > 0 or bool(c.task.source)
    said = f"corpus.validation_fraction = 0 leaves evals.{''.join(names[:1])} nothing to read"
    need(held, said, "raise it, or set evals = {} and checkpoints.best = '' in the config file")


# --- the rules of masking ------------------------------------------------------------------------


def _check_masks(c: Config) -> None:
    """Check the rules of masking, and of `diffusion`, `hybrid` and `replaced`."""
    _check_masking(c)
    _check_views(c)
    if "diffusion" in c.objectives and c.objectives["diffusion"].gamma:
        _check_diffusion(c)
    if "hybrid" in c.objectives:
        _check_hybrid(c)
    if "replaced" in c.objectives:
        _check_replaced(c)


def _list_splits(c: Config) -> dict[str, tuple[float, float, float]]:
    """Return {section: (share of [MASK], of random tokens, of kept tokens)}.

    The sections are `masking` for training, and `evals.NAME` for each evaluation.
    """
    return {"masking": c.masking.replace} | {f"evals.{n}": e.replace for n, e in c.evals.items()}


def _check_masking(c: Config) -> None:
    k = c.masking
    for name, split in _list_splits(c).items():
        said = f"{name}.replace = {split} sums to {sum(split):g}"
        need(abs(sum(split) - 1) < 1e-6, said, "mask + random + keep = 1")
    ends = [0.0, *(phase[0] for phase in k.phases)]
    rising = all(ends[i] < ends[i + 1] for i in range(len(k.phases)))
    need(rising, f"masking.phases end at {ends[1:]}", "each later than the phase before")
    late = ends[-1] == 1 and k.phases[-1][2] == "step"
    need(not late, "masking.phases has a step at the end of training", "leave it out")
    said = f"masking.draw_low = {k.draw_low:g} with masking.draw_high = {k.draw_high:g}"
    need(k.draw_low <= k.draw_high, said, "from the lowest rate to the highest")
    longest = (k.span_max + 1) / 2  # the longest mean, where all lengths are equally likely
    said = f"masking.span_mean = {k.span_mean:g} cannot be reached with span_max = {k.span_max}"
    reached = "span" not in list_units(c) or k.span_mean <= longest
    need(reached, said, f"at most {longest:g}, or raise masking.span_max")


def _check_views(c: Config) -> None:
    """Refuse a prediction rate above the masking rate if there cannot be several views."""
    k = c.masking
    lowest, wanted = rates.rate_range(k)[0], k.prediction_rate
    if k.draw != "fixed" or wanted is None or wanted <= lowest:
        return
    said = f"masking.prediction_rate = {wanted} exceeds the lowest rate, {lowest:g}, of a schedule"
    need(not k.phases, said, "lower it, or keep the rate constant")
    views = rates.count_views(k)
    of = f"ceil(prediction_rate / rate) = {views} views of an example"
    said = f"masking.overflow = {k.overflow!r} has no {of}: its selections are not nested"
    need(k.unit == "token" or k.overflow == "fair", said, "--config.masking.overflow=fair")
    unit = math.lcm(views, c.optim.accumulation)
    fits = -(-c.batch_size // unit) * unit
    said = f"batch_size = {c.batch_size} is not divisible by {of}"
    hint = f"it counts views: a multiple of {unit}, --config.batch_size={fits}"
    need(c.batch_size % views == 0, said, hint)


def _check_diffusion(c: Config) -> None:
    """Refuse masks and rows for which the loss is no bound on the likelihood."""
    k, length = c.masking, c.sequence_length
    said, other = "objectives.diffusion", "or --config.objectives.diffusion.gamma=0"
    hidden = f"{said} replaces by [MASK] alone, and masking.replace = {k.replace}"
    need(k.replace == (1.0, 0.0, 0.0), hidden, "--config.masking.replace=1,0,0")
    exact = k.unit == "token" and k.count == "eligible"
    counts = f"{said} counts tokens, and masking.unit = {k.unit!r} with count = {k.count!r}"
    hint = "--config.masking.unit=token --config.masking.count=eligible"
    need(exact, f"{counts} does not select exactly as many as it asks for", hint)
    alike = f"{said} takes all orders of masks as equally likely: masking.weights = {k.weights!r}"
    need(k.weights == "none", alike, f"--config.masking.weights=none, {other}")
    table = f"{said} has a table of sequence_length x sequence_length weights: {length}"
    need(length <= DIFFUSION_LONGEST, table, f"at most {DIFFUSION_LONGEST}, {other}")
    gaps = f"masking.draw = {k.draw!r}: some numbers of masked tokens cannot occur, so no bound is"
    hint = f"--config.masking.draw=uniform from 0 to 1, {other}"
    need(drawn_quotas.covers_quotas(k, length), gaps, hint)


def _check_hybrid(c: Config) -> None:
    said = "objectives.hybrid"
    single = f"{said} reads single texts, and pairs = {c.pairs!r}"
    need(c.pairs == "none", single, "--config.pairs=none")
    causal = f"{said} decides by example what is causal, and model.causal makes all so"
    need(not c.model.causal, causal, "--config.model.causal=false")
    once = f"{said} reads an example once, and masking.prediction_rate asks for several views"
    need(rates.count_views(c.masking) == 1, once, "lower masking.prediction_rate to the rate")
    blocks = "model.attention = 'splash': its blocks are causal in all examples or in none"
    need(c.model.attention != "splash", blocks, ATTENTION_HINT)


def _check_replaced(c: Config) -> None:
    others = [name for name in ("causal_lm", "diffusion", "hybrid") if name in c.objectives]
    said = f"objectives.replaced beside objectives.{''.join(others[:1])}"
    need(not others, said, "it trains alone, or beside mlm: leave one of them out")
    if c.generator_share:
        _check_generator(c)
        return
    for name, (_, random, _) in _list_splits(c).items():
        said = f"{name}.replace has no random tokens, and objectives.replaced finds nothing else"
        hint = f"--config.{name}.replace=0,1,0 or --config.objectives.replaced.generator=0.25"
        need(random > 0, said, hint)


def _check_generator(c: Config) -> None:
    """Refuse settings with which a generator cannot work.

    These are no loss for it, masks that it leaves in the text, a width that its heads do not
    divide, and random tokens as replacements.
    """
    small, wanted = c.generator, c.masking.prediction_rate
    assert small is not None
    _, width, heads, _ = small.shape
    named = f"objectives.replaced.generator = {c.generator_share:g}"
    said = f"{named} trains the generator by objectives.mlm, which is left out"
    need("mlm" in c.objectives, said, "keep mlm, or --config.objectives.replaced.generator=0")
    highest = rates.rate_range(c.masking)[1]
    said = f"{named} fills all masks, and masking.prediction_rate = {wanted} leaves some"
    fills = wanted is None or c.masking.draw != "fixed" or wanted >= highest
    need(fills, said, "leave masking.prediction_rate out, or raise it to the rate")
    unit = heads * 2 if small.position == "rotary" else heads
    said = f"{named} makes {heads} heads of a width of {width}"
    share = heads / c.model.shape[2]
    hint = f"--config.objectives.replaced.generator={share:.6g} has heads as wide as the encoder's"
    need(width % unit == 0, said, hint)
    for name, (mask, random, _) in _list_splits(c).items():
        said = f"objectives.replaced.generator fills in what is hidden, and {name}.replace has "
        said += f"shares of {mask:g} for [MASK] and {random:g} for random tokens"
        hint = f"--config.{name}.replace=1,0,0, or 0.85,0,0.15 as in the authors' code"
        need(mask > 0 and random == 0, said, hint)


# --- the limits of attention backends, without importing jax --------------------------------------


def explain_unfit_model(name: str, m: knobs.Model) -> str:
    """Explain why an attention backend cannot compute a model; "" if it can."""
    width = m.shape[1] // m.shape[2]
    if name == "cudnn" and m.dtype in ("float32", "bfloat16_products"):
        return "it computes in bfloat16: --config.model.dtype=bfloat16"
    if name == "cudnn" and (width % 8 or width > CUDNN_WIDEST):
        return f"heads of width {width}: it takes multiples of 8, up to {CUDNN_WIDEST}"
    if name in ("cudnn", "splash") and m.position == "relative":
        return "it has no scores of distances, as model.position = 'relative' needs"
    if name == "splash" and m.position == "alibi":
        return "it takes no bias, as model.position = 'alibi' needs"
    return ""


def explain_unfit_length(name: str, length: int) -> str:
    """Explain why an attention backend cannot compute rows of this length; "" if it can."""
    if name == "splash" and length % SPLASH_BLOCK:
        return f"rows of {length} tokens: it takes multiples of {SPLASH_BLOCK}"
    if name == "cudnn" and length % 2:
        return f"rows of {length} tokens: it takes even numbers"
    return ""
