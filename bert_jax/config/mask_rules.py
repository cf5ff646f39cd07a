"""Rules between the knobs of masking, and of `diffusion`, `hybrid` and `replaced`."""

from __future__ import annotations

import math

from bert_jax.config import abilities
from bert_jax.config.knobs import BOUND, Config
from bert_jax.errors import need
from bert_jax.masking import drawn_quotas, rates


def check(c: Config) -> None:
    """Raise a ConfigError for the first of these rules that a config breaks."""
    for rules in (_masking, _views, _diffusion, _hybrid, _replaced):
        rules(c)


def _masking(c: Config) -> None:
    k = c.masking
    shares = {"masking": k.replace} | {f"evals.{n}": e.replace for n, e in c.evals.items()}
    for name, replace in shares.items():
        need(
            abs(sum(replace) - 1) < 1e-6,
            f"{name}.replace = {replace} sums to {sum(replace):g}",
            "mask + random + keep = 1",
        )
    fault = _fault_of_phases(k.phases)
    need(not fault, f"masking.phases has {fault}", "((until, rate, how), …), until from 0 up to 1")
    need(
        k.draw_low <= k.draw_high and k.draw_high > 0,
        f"masking.draw_low = {k.draw_low:g} with masking.draw_high = {k.draw_high:g}",
        "rates above 0, from the lowest to the highest",
    )
    asked = {"masking.rate": k.rate, "masking.prediction_rate": k.prediction_rate}
    for name, rate in (asked | {f"evals.{n}.rate": e.rate for n, e in c.evals.items()}).items():
        need(
            rate != 0,
            f"{name} = 0 selects nothing",
            "any rate above 0: an example has at least one selected token",
        )
    longest_mean = (k.span_max + 1) / 2  # where all lengths are equally likely
    need(
        k.unit != "span" or k.span_mean <= longest_mean,
        f"masking.span_mean = {k.span_mean:g} cannot be reached with "
        f"masking.span_max = {k.span_max}",
        f"at most {longest_mean:g}, or raise masking.span_max",
    )


def _fault_of_phases(phases: tuple[tuple[float, float, str], ...]) -> str:
    """Name what is wrong with masking.phases; return "" if nothing is."""
    before = 0.0
    for until, _, how in phases:
        if not before < until:
            return f"a phase until {until:g} begins at {before:g}"
        if how == "step" and until == 1:
            return "a step at the end of training"
        before = until
    return ""


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
        "lower it, or leave it out, or keep the rate constant",
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
    k, objective = c.masking, c.objectives.get("diffusion")
    if objective is None or not objective.gamma:
        return
    need(
        k.replace == (1.0, 0.0, 0.0),
        f"objectives.diffusion replaces by [MASK] alone, and masking.replace = {k.replace}",
        "--config.masking.replace=1,0,0",
    )
    need(
        k.unit == "token" and k.count == "eligible",
        f"objectives.diffusion counts tokens, and masking.unit = {k.unit!r} with "
        f"masking.count = {k.count!r} does not select exactly as many as it asks for",
        "--config.masking.unit=token --config.masking.count=eligible",
    )
    need(
        k.weights == "none",
        f"objectives.diffusion takes all orders of masks as equally likely, and masking.weights = "
        f"{k.weights!r} does not",
        "--config.masking.weights=none, or --config.objectives.diffusion.gamma=0",
    )
    need(
        c.sequence_length <= BOUND,
        f"objectives.diffusion has a table of sequence_length x sequence_length weights, and "
        f"sequence_length = {c.sequence_length}",
        f"at most {BOUND}, or --config.objectives.diffusion.gamma=0",
    )
    need(
        drawn_quotas.covers_quotas(k, c.sequence_length),
        f"under masking.draw = {k.draw!r} some numbers of masked tokens cannot occur, so there is "
        "no bound on the likelihood",
        "--config.masking.draw=uniform from 0 to 1, or --config.objectives.diffusion.gamma=0",
    )


def _hybrid(c: Config) -> None:
    if "hybrid" not in c.objectives:
        return
    need(
        c.pairs == "none",
        f"objectives.hybrid reads single texts, and pairs = {c.pairs!r}",
        "--config.pairs=none",
    )
    need(
        not c.model.causal,
        "objectives.hybrid decides by example what is causal, and model.causal makes all so",
        "--config.model.causal=false, or objectives.causal_lm in its place",
    )
    need(
        rates.count_views(c.masking) == 1,
        "objectives.hybrid reads an example once, and masking.prediction_rate above the rate asks "
        "for several views",
        "lower masking.prediction_rate to the rate, or leave it out",
    )
    need(
        c.model.attention != "splash",
        "model.attention = 'splash': its blocks are causal in all examples or in none",
        abilities.HINT,
    )


def _replaced(c: Config) -> None:
    if "replaced" not in c.objectives:
        return
    other = next((n for n in ("causal_lm", "diffusion", "hybrid") if n in c.objectives), "")
    need(
        not other,
        f"objectives.replaced beside objectives.{other}",
        "it trains alone, or beside mlm: leave one of them out",
    )
    _generator(c)
    shares = {"masking": c.masking.replace} | {f"evals.{n}": e.replace for n, e in c.evals.items()}
    for name, (mask, random, _) in shares.items():
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
                f"{name}.replace has no random tokens, and objectives.replaced finds nothing else "
                "([MASK] is seen at once, and such places are not judged)",
                f"--config.{name}.replace=0,1,0 or --config.objectives.replaced.generator=0.25",
            )


def _generator(c: Config) -> None:
    """Refuse a generator that has no loss, leaves masks in the text, or has no whole heads."""
    small, wanted = c.generator, c.masking.prediction_rate
    if small is None:
        return
    assert small.hidden is not None
    assert small.heads is not None
    assert c.model.heads is not None
    whole = small.heads / c.model.heads  # a share that divides no head
    named = f"objectives.replaced.generator = {c.generator_share:g}"
    need(
        "mlm" in c.objectives,
        f"{named} trains the generator by objectives.mlm, which is left out",
        "keep mlm, or --config.objectives.replaced.generator=0",
    )
    need(
        wanted is None or c.masking.draw != "fixed" or wanted >= rates.rate_range(c.masking)[1],
        f"{named} fills all masks, and masking.prediction_rate = {wanted} leaves some",
        "leave masking.prediction_rate out, or raise it to the rate",
    )
    even = 2 if small.position == "rotary" else 1
    need(
        small.hidden % (even * small.heads) == 0,
        f"{named} makes {small.heads} heads of a width of {small.hidden}",
        f"--config.objectives.replaced.generator={whole:.6g} has heads as wide as the encoder's",
    )
