"""Masking: invariants over random batches, and the original's arithmetic."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import laws, quotas
from bert_jax.config.knobs import Masking
from bert_jax.objectives import masking
from tests import toy

ROUNDINGS = ("unbiased", "nearest")
RATES = (0.05, 0.1, 0.15, 0.3, 0.4, 0.5, 0.8, 1.0)
rows = st.builds(
    toy.batch,
    rows=st.just(4),
    length=st.just(32),
    seed=st.integers(0, 10_000),
    examples=st.integers(1, 3),
    longest_unit=st.just(1),
)
unit_rows = st.builds(
    toy.batch,
    rows=st.just(4),
    length=st.just(32),
    seed=st.integers(0, 10_000),
    examples=st.integers(1, 3),
    longest_unit=st.integers(2, 6),
)


def eligible_counts(b):
    """Eligible tokens of every example, by a plain loop."""
    return [
        [int(((seg == s + 1) & (unit >= 0)).sum()) for s in range(b["example_ids"].shape[1])]
        for seg, unit in zip(b["segment_ids"], b["unit_ids"], strict=True)
    ]


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.15000001, 0.3, 0.4, 0.5, 0.8, 1.0])
def test_quotas_are_pythons_rounding_of_the_product(rate):
    whole, chance = quotas.selected(Masking(rounding="nearest"), rate, 512)
    assert whole.tolist() == [0] + [max(1, round(n * rate)) for n in range(1, 513)]
    assert not chance.any()


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.29, 0.4, 0.7, 1.0])
def test_quotas_unbiased_have_the_exact_mean(rate):
    """Of every length: the product of fractions, but for 2**-33, and whole where that is whole."""
    whole, chance = quotas.selected(Masking(), rate, 512)
    for n in range(1, 513):
        exact = max(Fraction(1), n * Fraction(str(rate)))
        assert abs(int(whole[n]) + Fraction(int(chance[n]), 2**32) - exact) <= Fraction(1, 2**33)
        assert exact.denominator > 1 or (whole[n], chance[n]) == (exact, 0)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_no_rate_no_quota(rounding):
    assert not any(table.any() for table in quotas.selected(Masking(rounding=rounding), 0.0, 128))


def test_rounding_draws_are_of_seed_copy_and_example():
    """Equal in any batch, and apart from all draws of tokens."""
    b = toy.batch(5, 32, seed=3, examples=2)
    found = toy.rounding_draws(b, 7)
    of_seed = toy.rounding_draws(b, 8)
    of_copy = toy.rounding_draws(b | {"copies": b["copies"] + 1}, 7)
    every = np.concatenate([found, of_seed, of_copy])
    assert len(np.unique(every)) == 3 * 5 * 2
    other = toy.batch(3, 40, seed=4)  # other texts, of which the last has a known number
    other["example_ids"][2], other["copies"][2] = b["example_ids"][1, 1], b["copies"][1, 1]
    assert toy.rounding_draws(other, 7)[2] == found[1, 1]
    words = np.concatenate([np.ravel(w) for w in masking._draws(b, np.uint32(7))])
    assert not set(found.ravel()) & set(words.tolist())


@pytest.mark.parametrize(
    ("rate", "nearest"), [(0.10, 3 / 29), (0.15, 4 / 29), (0.20, 6 / 29), (0.40, 12 / 29)]
)
def test_rates_of_short_rows_are_those_asked_for(rate, nearest):
    """Rows of 32 tokens, of which a pair has 29: 15 % to the nearest is 13.8 %."""
    count = 20_000
    b = toy.batch(1, 32)
    b["tokens"][:], b["segment_ids"][:], b["positions"][:] = 7, 1, np.arange(32)
    b["unit_ids"][:] = np.where(np.isin(np.arange(32), (0, 15, 31)), -1, np.arange(32))
    b = {key: np.repeat(value, count, axis=0) for key, value in b.items()}
    b["example_ids"] = np.arange(count, dtype=np.int32)[:, None]
    realised = {}
    for rounding in ROUNDINGS:
        ledger = toy.mask(b, Masking(rate=rate, rounding=rounding))[1]
        realised[rounding] = ledger["masked_fraction"][0] / ledger["masked_fraction"][1]
    error = 0.5 / 29 / math.sqrt(count)  # at most, of a mean whose quotas are off by a draw
    assert abs(realised["unbiased"] - rate) < 4.5 * error
    assert realised["nearest"] == pytest.approx(nearest)
    assert abs(nearest - rate) > 10 * error


@given(
    rows,
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
    st.sampled_from(ROUNDINGS),
    st.integers(0, 2**31),
)
def test_masks_are_nested_over_a_fine_grid_of_rates(b, rates, rounding, seed):
    before = np.zeros(b["tokens"].shape, bool)
    for rate in sorted([*rates, *(rates[0] + i * 1e-4 for i in range(3))]):
        hit = toy.chosen(toy.mask(b, Masking(rate=min(rate, 1.0), rounding=rounding), seed)[0])
        assert (hit | ~before).all()
        before = hit


@given(rows, st.sampled_from(RATES), st.sampled_from(ROUNDINGS), st.integers(0, 2**31))
def test_tokens_are_selected_exactly_and_only_where_eligible(b, rate, rounding, seed):
    out, ledger = toy.mask(b, Masking(rate=rate, rounding=rounding), seed)
    hit = toy.chosen(out)
    assert not hit[b["unit_ids"] < 0].any()
    counts = [
        [int(hit[r][b["segment_ids"][r] == s + 1].sum()) for s in range(b["example_ids"].shape[1])]
        for r in range(len(hit))
    ]
    draws = toy.rounding_draws(b, seed)
    assert counts == [
        [toy.quota(n, rate, rounding, draw) for n, draw in zip(*row, strict=True)]
        for row in zip(eligible_counts(b), draws, strict=True)
    ]
    np.testing.assert_array_equal(out["inputs"][~hit], b["tokens"][~hit])
    np.testing.assert_array_equal(
        out["predict_targets"][out["predict_weights"] > 0], b["tokens"][hit]
    )
    assert ledger["masked_fraction"] == (hit.sum(), (b["unit_ids"] >= 0).sum())


@pytest.mark.parametrize("unit", [1, 40_000])
def test_quotas_are_exact_up_to_the_longest_row(unit):
    """Of 65,535 tokens, 65,533 are eligible: tokens by themselves, or one long unit and tokens."""
    b = toy.batch(1, 65_535, seed=5)
    b["segment_ids"][:] = 1
    b["positions"][:] = np.arange(65_535)
    b["unit_ids"][0, 1:-1] = np.arange(1, 65_534)
    b["unit_ids"][0, [0, -1]] = -1
    b["unit_ids"][0, 1 : 1 + unit] = 1
    taken = []
    for rate in (0.3, 0.5, 0.6, 1.0):
        settings = Masking(rate=rate, unit="word", max_unit=65_535)
        hit = toy.chosen(toy.mask(b, settings)[0])
        taken.append(int(hit.sum()))
        quota = toy.quota(65_533, rate, "unbiased", toy.rounding_draws(b, 0)[0, 0])
        assert abs(taken[-1] - quota) <= (0 if unit == 1 or rate == 1 else unit)
        assert len(set(hit[0, 1 : 1 + unit])) == 1
    assert taken == sorted(taken)


@given(unit_rows, st.integers(0, 2**31))
def test_units_are_whole_and_sets_are_nested_over_rates(b, seed):
    before = np.zeros(b["tokens"].shape, bool)
    for rate in RATES:
        out, _ = toy.mask(b, Masking(rate=rate, unit="word"), seed)
        hit = toy.chosen(out)
        assert (hit | ~before).all(), (
            "a token selected at a lower rate is selected at every higher one"
        )
        for row, units in enumerate(b["unit_ids"]):
            for unit in set(units[units >= 0]):
                assert len(set(hit[row][units == unit])) == 1
        before = hit
    assert (before == (b["unit_ids"] >= 0)).all()


@given(unit_rows, st.integers(0, 2**31))
def test_corruption_does_not_depend_on_the_rate_where_both_select(b, seed):
    low, high = (toy.mask(b, Masking(rate=rate), seed)[0] for rate in (0.2, 0.6))
    both = toy.chosen(low)
    np.testing.assert_array_equal(low["inputs"][both], high["inputs"][both])


@given(
    unit_rows,
    st.randoms(use_true_random=False),
    st.integers(0, 2**31),
    st.sampled_from(["fair", "skip"]),
)
def test_a_mask_does_not_depend_on_the_batch_around_it(b, random, seed, overflow):
    """Some of its rows in another order, with padding behind them; that the size is free is shown
    by packed rows.
    """
    order = list(range(len(b["tokens"])))
    random.shuffle(order)
    order = order[: random.randint(1, len(order))]
    settings = Masking(rate=0.3, unit="word", overflow=overflow)
    whole, _ = toy.mask(b, settings, seed)
    rest = len(b["tokens"]) - len(order)
    part, _ = toy.mask(
        {k: np.concatenate([v[order], padding(b)[k][:rest]]) for k, v in b.items()}, settings, seed
    )
    np.testing.assert_array_equal(part["inputs"][: len(order)], whole["inputs"][order])


def padding(b):
    """As many rows without a token."""
    return {k: np.full_like(v, -1 if k in ("unit_ids", "labels") else 0) for k, v in b.items()}


@pytest.mark.parametrize("overflow", ["fair", "skip"])
def test_a_packed_row_is_masked_as_its_examples_alone(overflow):
    packed = toy.batch(6, 48, seed=3, examples=3, longest_unit=3)
    settings = Masking(rate=0.3, unit="word", overflow=overflow)
    together, _ = toy.mask(packed, settings)
    for row in range(6):
        for s in range(3):
            mine = packed["segment_ids"][row] == s + 1
            start, n = int(mine.argmax()), int(mine.sum())
            alone = {
                k: np.zeros((1, 48), np.int32)
                for k in ("tokens", "type_ids", "positions", "segment_ids", "unit_ids")
            }
            alone["unit_ids"] -= 1
            for key in ("tokens", "positions"):
                alone[key][0, :n] = packed[key][row, mine]
            alone["segment_ids"][0, :n] = 1
            units = packed["unit_ids"][row, mine]
            alone["unit_ids"][0, :n] = np.where(units >= 0, units - start, -1)
            for key in ("example_ids", "copies", "cls_positions", "labels"):
                alone[key] = packed[key][row : row + 1, s : s + 1]
            out, _ = toy.mask(alone, settings)
            np.testing.assert_array_equal(out["inputs"][0, :n], together["inputs"][row, mine])


@pytest.mark.parametrize("overflow", ["fair", "skip"])
def test_arms_are_the_runs_they_stand_for(overflow):
    b = toy.batch(8, 32, seed=5, longest_unit=4)
    arms = [
        (Masking(rate=r, replace=s), seed)
        for r, s, seed in ((0.15, (0.8, 0.1, 0.1), 0), (0.4, (1, 0, 0), 1))
    ]
    stacked = jax.tree.map(lambda *x: np.stack(x), *(toy.traced(m, 32, seed) for m, seed in arms))

    def one(numbers):
        return masking.apply(
            b,
            numbers,
            settings=Masking(overflow=overflow),
            special=toy.SPECIAL,
            replacements=masking.random_ids(Masking(), toy.SPECIAL, toy.VOCAB),
            slots=32,
        )[0]["inputs"]

    together = np.asarray(jax.jit(jax.vmap(one))(stacked))
    for index, (settings, seed) in enumerate(arms):
        alone = toy.mask(b, toy.replace(settings, overflow=overflow), seed)[0]["inputs"]
        np.testing.assert_array_equal(together[index], alone)


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (0.5, 0.5, 0.0), (0.0, 0.2, 0.8)])
def test_the_split_holds_within_sampling_error(rate, split):
    b = toy.batch(512, 64, seed=7)
    out, ledger = toy.mask(b, Masking(rate=rate, replace=split), seed=11)
    hit = toy.chosen(out)
    n = int(hit.sum())
    # Counted from the tokens, not from the ledger: a random draw hits the true token or [MASK] once
    # in VOCAB.
    to_mask = (out["inputs"][hit] == toy.SPECIAL.mask).sum() / n
    same = (out["inputs"][hit] == b["tokens"][hit]).sum() / n
    expected_mask, expected_same = split[0] + split[1] / toy.VOCAB, split[2] + split[1] / toy.VOCAB
    for value, share in ((to_mask, expected_mask), (same, expected_same)):
        assert abs(value - share) <= 4.5 * math.sqrt(share * (1 - share) / n)
    for name, share in zip(
        ("mask_token_fraction", "random_fraction", "kept_fraction"), split, strict=True
    ):
        assert abs(ledger[name][0] / n - share) <= 4.5 * math.sqrt(share * (1 - share) / n)


def test_the_split_is_drawn_for_each_piece_of_a_word():
    b = toy.batch(512, 64, seed=8, longest_unit=3)
    out, _ = toy.mask(b, Masking(rate=0.4, unit="word", replace=(0.8, 0.0, 0.2)))
    hit = toy.chosen(out)
    replaced = out["inputs"] == toy.SPECIAL.mask
    pairs = [
        (r, c)
        for r, c in np.argwhere(hit[:, :-1])
        if b["unit_ids"][r, c] == b["unit_ids"][r, c + 1]
    ]
    alike = np.mean([replaced[r, c] == replaced[r, c + 1] for r, c in pairs])
    expected = (
        0.8**2 + 0.2**2
    )  # of neighbours that know nothing of each other; 1 if a word were drawn as one
    assert abs(alike - expected) < 5 * math.sqrt(expected * (1 - expected) / len(pairs))


def test_random_tokens_are_uniform_over_what_the_config_names():
    b = toy.batch(2048, 64, seed=9)
    for source, ids in (("all", range(toy.VOCAB)), ("regular", range(5, toy.VOCAB))):
        out, _ = toy.mask(b, Masking(rate=1.0, replace=(0.0, 1.0, 0.0), random_from=source))
        drawn = np.bincount(out["inputs"][toy.chosen(out)], minlength=toy.VOCAB + 4)
        assert drawn.sum() == drawn[list(ids)].sum()
        expected = drawn.sum() / len(ids)
        chi2 = float(((drawn[list(ids)] - expected) ** 2 / expected).sum())
        dof = len(ids) - 1
        assert abs(chi2 - dof) < 5 * math.sqrt(2 * dof)


def test_units_meet_the_quota_on_average_and_slots_always_suffice():
    settings = Masking(rate=0.15, unit="word", max_unit=6)
    b = toy.batch(4096, 64, seed=13, longest_unit=6)
    slots = quotas.slots(settings, 64)
    out, ledger = toy.mask(b, settings, slots=slots)
    selected, quota = ledger["masked_fraction"][0], ledger["quota_fraction"][0]
    assert abs(selected - quota) < 4 * 3 * math.sqrt(
        len(b["tokens"])
    )  # error a row: mean 0, deviation at most 3
    assert out["predict_weights"].sum() == selected == ledger["predicted_fraction"][0]


# --- units that do not fit: skipped, as the original does with words ------------------------------


def original(cand_indexes: list[list[int]], num_to_predict: int) -> list[list[int]]:
    """The loop of create_masked_lm_predictions over shuffled candidates, for candidates that do not
    overlap.
    """
    masked_lms: list[int] = []
    taken = []
    for index_set in cand_indexes:
        if len(masked_lms) >= num_to_predict:
            break
        if len(masked_lms) + len(index_set) > num_to_predict:
            continue
        masked_lms += index_set
        taken.append(index_set)
    return taken


def in_score_order(b, seed: int) -> list[list[list[list[int]]]]:
    """The units of each example of each row, each a list of columns, in the order of the draws."""
    scores = np.asarray(masking._draws(b, np.uint32(seed))[0])
    found = []
    for row, (segments, units) in enumerate(zip(b["segment_ids"], b["unit_ids"], strict=True)):
        found.append([])
        for s in range(b["example_ids"].shape[1]):
            begins = sorted(
                set(units[(segments == s + 1) & (units >= 0)].tolist()),
                key=lambda c: (scores[row, c], c),
            )
            found[-1].append([np.flatnonzero(units == begin).tolist() for begin in begins])
    return found


@given(
    unit_rows,
    st.sampled_from((0.02, 0.15, 0.3, 0.5, 0.8, 1.0)),
    st.sampled_from((None, 0.02, 0.1)),
    st.sampled_from(ROUNDINGS),
    st.integers(0, 2**31),
)
def test_skipping_is_the_originals_loop(b, rate, prediction_rate, rounding, seed):
    wanted = None if prediction_rate is None else min(prediction_rate, rate)
    settings = Masking(
        rate=rate,
        prediction_rate=wanted,
        unit="word",
        overflow="skip",
        replace=(1.0, 0.0, 0.0),
        max_unit=512,
        rounding=rounding,
    )
    out, ledger = toy.mask(b, settings, seed)
    draws = toy.rounding_draws(b, seed)
    corrupted, predicted = np.zeros((2, *b["tokens"].shape), bool)
    quotas = short = 0
    for row, examples in enumerate(in_score_order(b, seed)):
        for draw, units in zip(draws[row], examples, strict=True):
            n = sum(map(len, units))
            quota = toy.quota(n, rate, rounding, draw)
            taken = original(units, quota)
            fewer = rate if wanted is None else wanted
            again = original(taken, toy.quota(n, fewer, rounding, draw))
            corrupted[row, list(itertools.chain(*taken))] = predicted[
                row, list(itertools.chain(*again))
            ] = True
            missing = quota - sum(map(len, taken))
            quotas, short = quotas + quota, short + missing
            assert 0 <= missing < max(map(len, units), default=1)
    np.testing.assert_array_equal(out["inputs"] == toy.SPECIAL.mask, corrupted)
    np.testing.assert_array_equal(toy.chosen(out), predicted)
    assert ledger["quota_fraction"][0] == quotas
    assert quotas - ledger["shortfall_fraction"][0] <= corrupted.sum() == quotas - short


@given(rows, st.sampled_from(RATES), st.integers(0, 2**31))
def test_skipping_tokens_is_the_fair_rule(b, rate, seed):
    fair, skip = (toy.mask(b, Masking(rate=rate, overflow=rule), seed) for rule in ("fair", "skip"))
    for key, value in fair[0].items():
        np.testing.assert_array_equal(value, skip[0][key])
    assert fair[1] == {key: skip[1][key] for key in fair[1]}
    assert skip[1]["shortfall_fraction"][0] == skip[1]["predict_shortfall_fraction"][0] == 0


def test_skipping_is_not_nested_over_rates_and_needs_no_more_slots_than_its_quota():
    settings = Masking(rate=0.2, unit="word", overflow="skip", max_unit=512)
    assert quotas.slots(settings, 64) == round(0.2 * 64)
    b = toy.batch(256, 64, seed=13, longest_unit=6)
    out, ledger = toy.mask(b, settings, slots=quotas.slots(settings, 64))
    assert (
        out["predict_weights"].sum()
        == ledger["masked_fraction"][0]
        == ledger["predicted_fraction"][0]
    )
    more, _ = toy.mask(b, toy.replace(settings, rate=0.25))
    assert (toy.chosen(out) & ~toy.chosen(more)).any()


@pytest.mark.slow
def test_skipping_is_the_same_on_any_devices():
    settings = Masking(rate=0.3, unit="word", overflow="skip")
    b = toy.batch(16, 32, seed=2, longest_unit=5)
    alone = toy.mask(b, settings)[0]["inputs"]
    rows = jax.NamedSharding(
        jax.make_mesh((8,), ("data",), (jax.sharding.AxisType.Auto,)), jax.P("data")
    )
    np.testing.assert_array_equal(toy.mask(jax.device_put(b, rows), settings)[0]["inputs"], alone)
    shards = jax.tree.map(lambda x: x.reshape(8, 2, *x.shape[1:]), b)
    split = jax.pmap(
        lambda b: toy._apply(b, toy.traced(settings, 32), Masking(overflow="skip"), 32)[0]["inputs"]
    )
    np.testing.assert_array_equal(np.asarray(split(shards)).reshape(16, 32), alone)


def test_a_word_that_never_fits_leaves_its_example_unmasked():
    b = toy.batch(4, 32, seed=1)
    b["unit_ids"][0] = np.where(b["unit_ids"][0] >= 0, 1, -1)  # the whole text is one word
    b["unit_ids"][1:] = -1
    out, ledger = toy.mask(b, Masking(unit="word", overflow="skip"))
    np.testing.assert_array_equal(out["inputs"], b["tokens"])
    n = int((b["unit_ids"] >= 0).sum())
    assert (ledger["masked_fraction"], ledger["shortfall_fraction"]) == ((0, n), (n - 1, n))


def test_fewer_predictions_than_corruptions():
    b = toy.batch(64, 64, seed=17)
    all_of_them, _ = toy.mask(b, Masking(rate=0.4))
    some, ledger = toy.mask(b, Masking(rate=0.4, prediction_rate=0.2))
    np.testing.assert_array_equal(all_of_them["inputs"], some["inputs"])
    assert (toy.chosen(all_of_them) | ~toy.chosen(some)).all()
    draws = toy.rounding_draws(b, 0)[:, 0]
    wanted = sum(
        toy.quota(row[0], 0.2, "unbiased", draw)
        for row, draw in zip(eligible_counts(b), draws, strict=True)
    )
    assert some["predict_weights"].sum() == wanted == ledger["predicted_fraction"][0]


def test_seed_copy_and_example_each_change_the_mask():
    b = toy.batch(64, 64, seed=19)
    base = toy.mask(b, Masking())[0]["inputs"]
    assert (base != toy.mask(b, Masking(), seed=1)[0]["inputs"]).any()
    for key in ("copies", "example_ids"):
        assert (base != toy.mask({**b, key: b[key] + 100}, Masking())[0]["inputs"]).any()


def test_counting_cls_and_sep_changes_the_quota_as_the_original_does():
    b = toy.batch(64, 64, seed=23)
    _, ledger = toy.mask(b, Masking(rate=0.3, count="all", rounding="nearest"))
    lengths = (b["segment_ids"] > 0).sum(1)
    assert ledger["quota_fraction"][0] == sum(
        min(n - 2, max(1, round(int(n) * 0.3))) for n in lengths
    )


def test_the_rate_schedule_runs_from_first_to_last_step():
    settings = Masking(rate=0.3, schedule="linear", final_rate=0.15)
    assert laws.rate_at(settings, 0, 101) == 0.3
    assert laws.rate_at(settings, 50, 101) == pytest.approx(0.225)
    assert laws.rate_at(settings, 100, 101) == pytest.approx(0.15)
    assert quotas.slots(settings, 128) == math.ceil(0.3 * 128)
    assert quotas.slots(toy.replace(settings, rounding="nearest"), 128) == round(0.3 * 128)


@pytest.mark.fault(16)
def test_padding_rows_count_nothing():
    out, ledger = toy.mask(padding(toy.batch(4, 32)), Masking())
    assert not out["predict_weights"].any()
    assert ledger["masked_fraction"] == (0, 0)
