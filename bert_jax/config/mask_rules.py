"""Rules between the knobs of masking, and of `diffusion`, `hybrid` and `replaced`."""

from __future__ import annotations

import math

from bert_jax.config import abilities
from bert_jax.config.knobs import Config
from bert_jax.errors import need
from bert_jax.masking import drawn_quotas, rates

BOUND = 2_048  # tokens of a row at most, under objective diffusion


def check(c: Config) -> None:
    """Raise a ConfigError for the first of these rules that a config breaks."""
    _masking(c)
    _views(c)
    if "diffusion" in c.objectives and c.objectives["diffusion"].gamma:
        _diffusion(c)
    if "hybrid" in c.objectives:
        _hybrid(c)
    if "replaced" in c.objectives:
        _replaced(c)


def _splits(c: Config) -> dict[str, tuple[float, float, float]]:
    """Return the shares of [MASK], random and kept tokens in training and each evaluation."""
    return {"masking": c.masking.replace} | {f"evals.{n}": e.replace for n, e in c.evals.items()}


def _masking(c: Config) -> None:
    k = c.masking
    for name, split in _splits(c).items():
        total = sum(split)
        said = f"{name}.replace = {split} sums to {total:g}"
        need(abs(total - 1) < 1e-6, said, "mask + random + keep = 1")
    asked = {"masking.rate": k.rate, "masking.prediction_rate": k.prediction_rate}
    for name, rate in (asked | {f"evals.{n}.rate": e.rate for n, e in c.evals.items()}).items():
        need(rate != 0, f"{name} = 0 selects nothing", "any rate above 0")
    ends = [0.0, *(phase[0] for phase in k.phases)]
    rising = all(ends[i] < ends[i + 1] for i in range(len(k.phases)))
    need(rising, f"masking.phases end at {ends[1:]}", "each later than the phase before")
    late = ends[-1] == 1 and k.phases[-1][2] == "step"
    need(not late, "masking.phases has a step at the end of training", "leave it out")
    need(
        k.draw_low <= k.draw_high and k.draw_high > 0,
        f"masking.draw_low = {k.draw_low:g} with masking.draw_high = {k.draw_high:g}",
        "rates above 0, from the lowest to the highest",
    )
    longest_mean = (k.span_max + 1) / 2  # where all lengths are equally likely
    need(
        k.unit != "span" or k.span_mean <= longest_mean,
        f"masking.span_mean = {k.span_mean:g} cannot be reached with masking.span_max = "
        f"{k.span_max}",
        f"at most {longest_mean:g}, or raise masking.span_max",
    )


def _views(c: Config) -> None:
    """Refuse predictions above the rate where an example cannot be read in several views."""
    k = c.masking
    lowest, wanted = rates.rate_range(k)[0], k.prediction_rate
    if k.draw != "fixed" or wanted is None or wanted <= lowest:
        return
    need(
        not k.phases,
        f"masking.prediction_rate = {wanted} exceeds the lowest rate, {lowest:g}, and a rate that "
        "changes would change in how many views an example is read",
        "lower it, or keep the rate constant",
    )
    views = rates.count_views(k)
    of = f"ceil(prediction_rate / rate) = {views} views of an example"
    need(
        k.overflow == "fair",
        f"masking.overflow = {k.overflow!r} has no {of}: its selections are not nested",
        "--config.masking.overflow=fair, or masking.prediction_rate up to the rate",
    )
    unit = math.lcm(views, c.optim.accumulation)
    fits = -(-c.batch_size // unit) * unit
    need(
        c.batch_size % views == 0,
        f"batch_size = {c.batch_size} is not divisible by {of}",
        f"it counts views: a multiple of {unit}, --config.batch_size={fits}",
    )


def _diffusion(c: Config) -> None:
    """Refuse masks and rows for which the loss is no bound on the likelihood."""
    k = c.masking
    said, other = "objectives.diffusion", "or --config.objectives.diffusion.gamma=0"
    need(
        k.replace == (1.0, 0.0, 0.0),
        f"{said} replaces by [MASK] alone, and masking.replace = {k.replace}",
        "--config.masking.replace=1,0,0",
    )
    need(
        k.unit == "token" and k.count == "eligible",
        f"{said} counts tokens, and masking.unit = {k.unit!r} with masking.count = {k.count!r} "
        "does not select exactly as many as it asks for",
        "--config.masking.unit=token --config.masking.count=eligible",
    )
    need(
        k.weights == "none",
        f"{said} takes all orders of masks as equally likely, and masking.weights = "
        f"{k.weights!r} does not",
        f"--config.masking.weights=none, {other}",
    )
    need(
        c.sequence_length <= BOUND,
        f"{said} has a table of sequence_length x sequence_length weights, and sequence_length = "
        f"{c.sequence_length}",
        f"at most {BOUND}, {other}",
    )
    need(
        drawn_quotas.covers_quotas(k, c.sequence_length),
        f"{said}: under masking.draw = {k.draw!r} some numbers of masked tokens cannot occur, so "
        "there is no bound on the likelihood",
        f"--config.masking.draw=uniform from 0 to 1, {other}",
    )


def _hybrid(c: Config) -> None:
    said = "objectives.hybrid"
    single = f"{said} reads single texts, and pairs = {c.pairs!r}"
    need(c.pairs == "none", single, "--config.pairs=none")
    causal = f"{said} decides by example what is causal, and model.causal makes all so"
    need(not c.model.causal, causal, "--config.model.causal=false")
    once = f"{said} reads an example once, and masking.prediction_rate asks for several views"
    need(rates.count_views(c.masking) == 1, once, "lower masking.prediction_rate to the rate")
    blocks = "model.attention = 'splash': its blocks are causal in all examples or in none"
    need(c.model.attention != "splash", blocks, abilities.HINT)


def _replaced(c: Config) -> None:
    others = [name for name in ("causal_lm", "diffusion", "hybrid") if name in c.objectives]
    said = f"objectives.replaced beside objectives.{''.join(others[:1])}"
    need(not others, said, "it trains alone, or beside mlm: leave one of them out")
    if c.generator_share:
        _generator(c)
    for name, (mask, random, _) in _splits(c).items():
        if c.generator_share:
            need(
                mask > 0 and random == 0,
                f"objectives.replaced.generator fills in what is hidden, and {name}.replace has "
                f"shares of {mask:g} for [MASK] and {random:g} for random tokens",
                f"--config.{name}.replace=1,0,0 or, as the authors' code keeps some, 0.85,0,0.15",
            )
        else:
            need(
                random > 0,
                f"{name}.replace has no random tokens, and objectives.replaced finds nothing else",
                f"--config.{name}.replace=0,1,0 or --config.objectives.replaced.generator=0.25",
            )


def _generator(c: Config) -> None:
    """Refuse a generator that has no loss, leaves masks in the text, or has no whole heads."""
    small, wanted = c.generator, c.masking.prediction_rate
    assert small is not None
    _, width, heads, _ = small.shape
    named = f"objectives.replaced.generator = {c.generator_share:g}"
    need(
        "mlm" in c.objectives,
        f"{named} trains the generator by objectives.mlm, which is left out",
        "keep mlm, or --config.objectives.replaced.generator=0",
    )
    highest = rates.rate_range(c.masking)[1]
    need(
        wanted is None or c.masking.draw != "fixed" or wanted >= highest,
        f"{named} fills all masks, and masking.prediction_rate = {wanted} leaves some",
        "leave masking.prediction_rate out, or raise it to the rate",
    )
    even = 2 if small.position == "rotary" else 1
    share = heads / c.model.shape[2]  # divides no head
    need(
        width % (even * heads) == 0,
        f"{named} makes {heads} heads of a width of {width}",
        f"--config.objectives.replaced.generator={share:.6g} has heads as wide as the encoder's",
    )
