"""Rates with phases, and rates drawn for each example: their laws, masks and ledger."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest
from scipy import stats

from bert_jax import train
from bert_jax.config import knobs, laws, quotas
from bert_jax.config.knobs import Masking
from bert_jax.data import pipeline
from bert_jax.errors import DivergedError
from bert_jax.objectives import masking
from bert_jax.training.ledger import Ledger
from tests import corpora, outcomes, texts, toy

LAWS = {
    "uniform": (Masking(draw="uniform", draw_low=0.1, draw_high=0.5), stats.uniform(0.1, 0.4)),
    "beta": (Masking(draw="beta", draw_alpha=3.0, draw_beta=9.0), stats.beta(3, 9)),
    # 1 - cos(pi u / 2) and cos(pi u / 2) of a uniform u, by their distribution functions.
    "cosine_low": (Masking(draw="cosine_low"), lambda r: 2 / np.pi * np.arccos(1 - r)),
    "cosine_high": (Masking(draw="cosine_high"), lambda r: 1 - 2 / np.pi * np.arccos(r)),
}
BIMODAL = Masking(draw="bimodal", draw_low=0.15, draw_high=0.6, draw_share=0.25)
EVERY = {name: settings for name, (settings, _) in LAWS.items()} | {"bimodal": BIMODAL}


def drawn(settings: Masking, batch, seed: int = 0):
    """Return u of each example from 0 to 1, and its quota, from what apply is given."""
    u = np.asarray(jax.jit(masking.uniform)(batch, np.uint32(seed)))
    totals = (batch["unit_ids"] >= 0).sum(1, keepdims=True)
    return u.astype(np.float64) / 2**32, totals


@pytest.mark.parametrize("name", LAWS)
def test_rates_have_the_distribution_that_is_named(name):
    settings, law = LAWS[name]
    u = (np.arange(200_000) + 0.5) / 200_000
    rates = laws.rates(settings, u)
    cdf = law if callable(law) else law.cdf
    assert stats.kstest(rates, cdf).statistic < 1 / laws.CELLS  # straight within a cell
    means = {
        "uniform": 0.3,
        "beta": 0.25,
        "cosine_low": 1 - 2 / math.pi,
        "cosine_high": 2 / math.pi,
    }
    assert rates.mean() == pytest.approx(means[name], abs=1e-4)
    assert laws.mean_rate(settings) == pytest.approx(means[name], abs=1e-4)


@pytest.mark.parametrize("a", [0.5, 1.0, 2.0, 5.0])
def test_a_beta_law_has_a_rate_for_every_u(a):
    for b in (0.5, 2.0, 5.0, 30.0):
        table = laws.ends(Masking(draw="beta", draw_alpha=a, draw_beta=b))
        assert np.isfinite(table).all()
        assert table.mean() == pytest.approx(a / (a + b), abs=2e-3)


@pytest.mark.parametrize("rate", [0.07, 0.14, 0.35, 0.55])
def test_the_ledger_rounds_as_the_program_does(rate):
    """Of these rates a product with some length is almost between two whole numbers."""
    settings = Masking(draw="uniform", draw_low=rate, draw_high=rate, rounding="nearest")
    lengths = np.arange(513, dtype=np.int32)[:, None]
    u = np.zeros((513, 1), np.uint32)
    found = np.asarray(masking._drawn_quotas(laws.drawn(settings, 512), u, lengths))[:, 0]
    np.testing.assert_array_equal(found, laws.moments(settings, 512)[0][0])
    assert quotas.slots(settings, 512) >= found[-1]


@pytest.mark.parametrize("name", EVERY)
def test_draws_round_the_quota_of_a_drawn_rate(name):
    """Up where the draw lies below the fraction of length times rate; so the mean is the product.

    Another rounding of float32 is allowed for where the draw is as near to the fraction as that.
    """
    batch = toy.batch(512, 48, seed=1, examples=2)
    u = np.asarray(jax.jit(masking.uniform)(batch, np.uint32(0))).astype(np.float64) / 2**32
    draws = toy.rounding_draws(batch, 0) / 2**32
    totals = np.asarray(jax.jit(masking._per_example)(batch["unit_ids"] >= 0, batch))
    product = np.maximum(totals * laws.rates(EVERY[name], u), 1)
    sure = (np.abs(draws - product % 1) > 1e-5) & (totals > 0)
    assert sure.mean() > 0.95
    out, _ = toy.mask(batch, EVERY[name], slots=48)
    hit = toy.chosen(out)
    selected = np.asarray(jax.jit(masking._per_example)(hit, batch))
    np.testing.assert_array_equal(selected[sure], (np.floor(product) + (draws < product % 1))[sure])


def test_two_rates_have_the_shares_asked_for():
    rates = laws.rates(BIMODAL, (np.arange(2**14) + 0.5) / 2**14)
    values, counts = np.unique(rates, return_counts=True)
    assert values.tolist() == [0.15, 0.6]
    assert counts.tolist() == [3 * 2**12, 2**12]


@pytest.mark.parametrize("name", EVERY)
def test_each_example_has_the_quota_of_its_draw(name):
    """Half to even of length times rate, at least 1, where the rate is its quantile at u."""
    settings = dataclasses.replace(EVERY[name], rounding="nearest")
    batch = toy.batch(512, 48, seed=1)
    u, totals = drawn(settings, batch)
    out, ledger = toy.mask(batch, settings, slots=48)
    selected = np.asarray(out["predict_weights"]).sum(1)
    product = totals[:, 0] * laws.rates(settings, u)[:, 0]
    sure = np.abs(product % 1 - 0.5) > 1e-4  # rounding of float32 may tip others
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(selected[sure], np.maximum(np.round(product), 1)[sure])
    assert float(ledger["masked_fraction"][0]) == selected.sum()
    by_decile = [float(ledger[f"masked_decile_{d}"][0]) for d in range(10)]
    decile = np.minimum((u[:, 0] * 10).astype(int), 9)
    assert by_decile == [selected[decile == d].sum() for d in range(10)]


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
def test_a_law_without_width_selects_what_a_fixed_rate_does(rounding):
    """For every length: products with 15 % that are exactly between two numbers included."""
    same = Masking(draw="uniform", draw_low=0.15, draw_high=0.15, rounding=rounding)
    lengths = np.arange(2049, dtype=np.int32)[:, None]
    u = np.arange(2049, dtype=np.uint32)[:, None] * np.uint32(0x9E3779B9)
    draw = u * np.uint32(0x85EBCA6B) if rounding == "unbiased" else None
    found = masking._drawn_quotas(laws.drawn(same, 2048), u, lengths, draw)
    fixed = quotas.selected(same, 0.15, 2048)
    more = 0 if draw is None else draw[:, 0] < fixed.chance
    np.testing.assert_array_equal(np.asarray(found)[:, 0], fixed.whole + more)
    batch = toy.batch(16, 48, examples=2, seed=3)
    one, other = (toy.mask(batch, settings)[0] for settings in (same, Masking(rounding=rounding)))
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def test_masks_of_a_drawn_rate_are_nested_in_those_of_a_higher_one():
    batch = toy.batch(32, 48, seed=5)
    low, high = (
        Masking(draw="uniform", draw_low=0.0, draw_high=top, replace=(1.0, 0.0, 0.0))
        for top in (0.4, 0.8)
    )
    few, many = (
        np.asarray(toy.mask(batch, settings, slots=48)[0]["inputs"]) == toy.SPECIAL.mask
        for settings in (low, high)
    )
    assert (few <= many).all()
    assert few.sum() < many.sum()


def test_every_window_of_the_stream_has_all_rates():
    """Of 1,000 examples in a row each tenth has 100, but for a few."""
    places = np.arange(20_000, dtype=np.int32)
    batch = {"places": places[:, None], "copies": np.zeros((20_000, 1), np.int32)}
    u = np.asarray(masking.uniform(batch, np.uint32(7)))[:, 0] / 2**32
    for start in (0, 377, 9_999, 19_000):
        counts, _ = np.histogram(u[start : start + 1000], np.linspace(0, 1, 11))
        assert np.abs(counts - 100).max() <= 3
    other = np.asarray(masking.uniform(batch, np.uint32(8)))[:, 0] / 2**32
    assert abs((other - u)[0]) > 1e-6  # another seed, another shift


def test_slots_hold_the_highest_rate():
    for rounding, found in (("nearest", (64, 128, 77)), ("unbiased", (65, 128, 77))):
        laws_of = (EVERY["uniform"], EVERY["cosine_low"], BIMODAL)
        every = [dataclasses.replace(one, rounding=rounding) for one in laws_of]
        assert tuple(quotas.slots(one, 128) for one in every) == found


# --- where a rate comes from in the stream --------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    documents = corpora.random_documents(60, seed=0)
    return corpora.prepared(tmp_path_factory.mktemp("laws"), [corpora.shard(documents, toy.VOCAB)])


def draws(prepared, batches: int, size: int, **overrides):
    """Return u by (copy, example), of the first batches."""
    config = toy.config(
        batch_size=size, sequence_length=32, pairs="none", masking__draw="uniform", **overrides
    )
    source = pipeline.Source(prepared, "train", config)
    found: dict[tuple[int, int], float] = {}
    for step in range(batches):
        batch = source.batch(step)
        u = np.asarray(masking.uniform(batch, np.uint32(0)))
        for row, slot in np.argwhere(
            batch["segment_ids"].max(1, keepdims=True) > np.arange(u.shape[1])
        ):
            key = int(batch["copies"][row, slot]), int(batch["example_ids"][row, slot])
            found.setdefault(key, u[row, slot])
            if config.masking.dupe_factor:
                assert found[key] == u[row, slot]  # of an example, whenever it comes
    return found


@pytest.mark.parametrize("overrides", [{}, {"packing": 3}, {"masking__dupe_factor": 2}])
def test_a_draw_is_the_same_in_any_batch(prepared, overrides):
    few, many = draws(prepared, 24, 4, **overrides), draws(prepared, 6, 16, **overrides)
    assert few == many
    assert len(set(few.values())) == len(few)


# --- the ledger -----------------------------------------------------------------------------------


def of_updates(settings: Masking, drawn_by: Masking, count: int = 4):
    """Yield the metrics of updates whose rates are those of one law, and the ledger of another."""
    traced = toy.traced(settings, 48)._replace(
        drawn=laws.drawn(drawn_by, 48)._replace(expected=laws.drawn(settings, 48).expected)
    )
    for step in range(count):
        batch = toy.batch(256, 48, seed=step)
        batch["places"] += 256 * step
        _, ledger = toy._apply(batch, traced, Masking(rounding=settings.rounding), 48)
        yield {key: (float(a), float(b)) for key, (a, b) in ledger.items()}


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
@pytest.mark.parametrize("name", EVERY)
def test_the_ledger_knows_the_law(name, rounding):
    settings = dataclasses.replace(EVERY[name], rounding=rounding)

    def add(rows) -> Ledger:
        ledger = Ledger(settings, length=48)
        for step, metrics in enumerate(rows):
            ledger.add(metrics, laws.rate_at(settings, step, 4), 256, step)
        return ledger

    ledger = add(of_updates(settings, settings))
    assert sum(ledger.totals[f"drawn_{d}"] for d in range(10)) == ledger.totals["asked"]
    wrong = dataclasses.replace(settings, draw="cosine_high" if name == "uniform" else "uniform")
    rows = list(of_updates(settings, wrong))
    with pytest.raises(DivergedError, match=r"in decile \d of the draws"):
        add(rows)


# --- phases ---------------------------------------------------------------------------------------


PHASES = Masking(
    rate=0.3, phases=((0.25, 0.15, "step"), (0.5, 0.45, "linear"), (1.0, 0.05, "cosine"))
)


def test_phases_go_where_they_say():
    """Over 401 steps a hundredth is four: values by hand."""
    at = [laws.rate_at(PHASES, step, 401) for step in (0, 99, 100, 150, 200, 300, 400)]
    assert at == pytest.approx([0.3, 0.3, 0.15, 0.3, 0.45, 0.25, 0.05])
    falling = Masking(rate=0.3, phases=((0.5, 0.15, "step"), (0.8, 0.05, "step")))
    assert {laws.rate_at(falling, step, 1001) for step in range(1001)} == {0.3, 0.15, 0.05}
    assert quotas.slots(PHASES, 128) == math.ceil(0.45 * 128)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.7, 1.0])
def test_the_mean_rate_is_that_of_the_steps(share):
    steps = 100_001
    done = round(share * (steps - 1))
    by_hand = np.mean([laws.rate_at(PHASES, step, steps) for step in range(0, done + 1, 10)])
    assert laws.mean_rate(PHASES, share) == pytest.approx(by_hand, abs=1e-4)


def test_a_schedule_is_a_phase_and_one_piece_is_constant():
    linear = Masking(rate=0.4, schedule="linear", final_rate=0.1)
    phase = Masking(rate=0.4, phases=((1.0, 0.1, "linear"),))
    for step in range(301):
        assert laws.rate_at(linear, step, 301) == laws.rate_at(phase, step, 301)
    for how in ("linear", "cosine"):
        still = Masking(rate=0.15, phases=((1.0, 0.15, how),))
        assert {laws.rate_at(still, step, 301) for step in range(301)} == {0.15}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": ((0.5, 0.3, "step"), (0.5, 0.2, "step"))}, "a phase until 0.5 begins at 0.5"),
        ({"phases": ((1.5, 0.3, "linear"),)}, "a phase until 1.5 begins at 0"),
        ({"phases": ((0.5, 0.0, "linear"),)}, "a phase to the rate 0"),
        ({"phases": ((0.5, 0.3, "jump"),)}, "none of step, linear, cosine"),
        ({"phases": ((1.0, 0.3, "step"),)}, "a step at the end of training"),
    ],
)
def test_phases_that_make_no_sense_are_named(changes, said):
    assert said in laws.fault_of_phases(dataclasses.replace(knobs.Masking(), **changes))


# --- whole runs -----------------------------------------------------------------------------------


SMALL = {"steps": 12, "batch_size": 16, "logging__every": 1, "checkpoints__every": 6}
SMALL |= {"pairs": "none", "evals__validation__every": 0}
LEDGER = [*(f"{name}_decile_{d}" for name in ("masked", "asked") for d in range(10))]
LEDGER += ["masked_fraction", "predicted_fraction"]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"packing": 3}, {"masking__dupe_factor": 2}])
def test_runs_of_several_laws_in_one_program_are_those_alone(base, tmp_path, overrides):
    arms = [{"masking__draw": "uniform"}, {"masking__draw": "cosine_low", "seed": 3}]
    configs = [texts.configure(base, **SMALL | overrides | arm) for arm in arms]
    together = [tmp_path / f"fused{i}" for i in range(2)]
    with texts.one_device():
        train.train(list(zip(configs, together, strict=True)), command=[])
        for config, fused in zip(configs, together, strict=True):
            alone = fused.with_name(f"{fused.name}_alone")
            train.run(config, alone, command=[])
            for name in LEDGER:
                assert outcomes.logged(fused, name) == outcomes.logged(alone, name), name
            np.testing.assert_allclose(
                outcomes.logged(fused, "loss"), outcomes.logged(alone, "loss"), atol=1e-4
            )


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"packing": 3}, {"masking__dupe_factor": 2}])
def test_a_run_of_drawn_rates_goes_on_where_it_was_stopped(base, tmp_path, overrides):
    config = texts.configure(base, **SMALL | overrides, masking__draw="beta")
    outcomes.assert_goes_on(config, tmp_path, 12)


@pytest.mark.slow
def test_drawn_rates_do_not_depend_on_the_devices(base, tmp_path):
    config = texts.configure(base, **SMALL, masking__draw="cosine_high")
    train.run(config, tmp_path / "eight", command=[])
    with texts.one_device():
        train.run(config, tmp_path / "one", command=[])
    for name in LEDGER:
        assert outcomes.logged(tmp_path / "eight", name) == outcomes.logged(
            tmp_path / "one", name
        ), name
