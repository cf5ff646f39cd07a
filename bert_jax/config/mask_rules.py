"""Rules between the knobs of masking, and of `diffusion`, `hybrid` and `replaced`."""

from __future__ import annotations

import math

from bert_jax.config import abilities
from bert_jax.config.knobs import Config
from bert_jax.errors import need
from bert_jax.masking import drawn_quotas, rates

BOUND = 2_048  # tokens of a row at most, under objective diffusion


def check_masks(c: Config) -> None:
    """Raise a ConfigError for the first rule of this module that a config breaks."""
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
    reached = k.unit != "span" or k.span_mean <= longest
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
    need(k.overflow == "fair", said, "--config.masking.overflow=fair")
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
    need(length <= BOUND, table, f"at most {BOUND}, {other}")
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
    need(c.model.attention != "splash", blocks, abilities.HINT)


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
