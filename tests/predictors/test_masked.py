"""`predict generate` of masked models, against a source of known conditionals."""

import dataclasses
import functools

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from scipy import stats

from bert_jax.data.engines import build_wordpiece
from bert_jax.data.tokenizer import SPECIALS, Tokenizer
from bert_jax.predictors import masked
from bert_jax.predictors.generate import Draw
from tests import markov, toy, variants
from tests.predictors import drawing

MASK = toy.SPECIAL.mask
MODEL = variants.GOLDEN / "huggingface" / "pretraining"


# --- a source that can be enumerated --------------------------------------------------------------


def generate(
    text: np.ndarray, count: int, steps: int, draw: Draw, *, random: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Texts [count, 6] from one in which -1 is a mask, by the source's own conditionals, and the
    rounds of its masks.
    """
    places = np.flatnonzero(text < 0).tolist()
    rows = markov.rows(np.broadcast_to(text, (count, markov.LENGTH)))
    masks = masked.Masks.build([places] * count, range(1, count + 1), steps, (count, len(places)))
    rows[rows == markov.FIRST - 1] = MASK
    settings = {"most": -(-len(places) // steps), "draw": draw, "random": random}
    reveal = jax.jit(functools.partial(masked.reveal, markov.logits_of, **settings))
    found = jax.device_get(reveal(rows, masks))
    texts = np.broadcast_to(text, (count, markov.LENGTH)).copy()
    texts[:, places] = found.tokens - markov.FIRST
    return texts, found.rounds


def how_likely(text: np.ndarray, found: np.ndarray) -> float:
    """The p-value of the texts found, by chi-squared; rare ones are counted as one."""
    fits = ((text == markov.TEXTS) | (text < 0)).all(1)
    expected = len(found) * markov.CHANCES * fits / markov.CHANCES[fits].sum()
    codes = (found @ markov.SYMBOLS ** np.arange(markov.LENGTH)[::-1]).astype(int)
    counts = np.bincount(codes, minlength=len(markov.TEXTS))
    assert not counts[~fits].any()
    often = expected >= 5
    pooled = [
        np.append(values[often], values[fits & ~often].sum()) for values in (counts, expected)
    ]
    if not pooled[1][-1]:
        pooled = [values[:-1] for values in pooled]
    return float(stats.chisquare(*pooled).pvalue)


NOTHING = np.full(markov.LENGTH, -1)
PARTLY = np.array([-1, 2, -1, -1, 0, -1])


@pytest.mark.parametrize(("text", "random"), [(NOTHING, True), (PARTLY, False)])
def test_reveal_draws_from_the_joint_distribution(text, random):
    masks = int((text < 0).sum())
    found, rounds = generate(text, 20_000, masks, Draw(1.0), random=random)
    assert how_likely(text, found) > 0.01
    assert (np.sort(rounds) == np.arange(masks)).all()
    assert (found[:, text >= 0] == text[text >= 0]).all()


def test_reveal_takes_random_orders_equally_often():
    text = np.array([0, -1, -1, 1, -1, 0])
    _, rounds = generate(text, 12_000, 3, Draw(), random=True)
    orders = np.unique(rounds, axis=0, return_counts=True)[1]
    assert len(orders) == 6
    assert stats.chisquare(orders).pvalue > 0.01


def test_reveal_fills_the_surest_first():
    text, hidden = PARTLY.copy(), PARTLY < 0
    order = []
    while hidden.any():
        chances = markov.conditionals(text, hidden)
        place = max(np.flatnonzero(hidden), key=lambda i: chances[i].max())
        text[place], hidden[place] = chances[place].argmax(), False
        order.append(int(place))
    found, rounds = generate(PARTLY, 2, 4, Draw(), random=False)
    assert (found == text).all()
    assert np.flatnonzero(PARTLY < 0)[np.argsort(rounds[0])].tolist() == order


# --- counts ---------------------------------------------------------------------------------------


@hypothesis.given(st.integers(1, 600), st.none() | st.integers(1, 700))
def test_schedule_rounds_is_as_even_as_can_be(masks, steps):
    counts = masked.schedule_rounds(masks, steps)
    assert len(counts) == min(steps or masks, masks)
    assert counts.sum() == masks
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


# --- a network; the net has what it fills in each round -------------------------------------------


def test_unmask_never_writes_special_tokens():
    """However likely the network finds them."""
    run = drawing.make_model()
    bias = np.zeros_like(run.params["mlm"]["bias"])
    bias[list(run.tokenizer.special)] = 50
    params = run.params | {"mlm": {**run.params["mlm"], "bias": bias}}
    wild = dataclasses.replace(run, params=params)
    texts = ["the [MASK] sees [MASK] .", "", "the cat"]
    for row in drawing.generate(wild, texts, max_tokens=6, temperature=2.0, show_steps=True):
        names = {one["token"] for revealed in row["steps"] for one in revealed}
        assert names
        assert not names & set(SPECIALS)


def test_unmask_adds_masks_as_there_is_room():
    (found,) = drawing.generate(drawing.make_model(), ["the cat " * 10], show_steps=True, steps=1)
    assert len(found["tokens"]) == 38  # 40 with [CLS] and [SEP]
    assert found["tokens"][:20] == ["the", "cat"] * 10


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("The Cat [MASK] the  (Q) .", ["sees"], "The Cat sees the  (Q) ."),
        ("the cat [MASK] see", [","], "the cat, see"),
        ("[MASK] [MASK] [MASK]", ["a", "##b", "."], "ab."),
        ("the[MASK][MASK].", ["cat", "see"], "the cat see."),
        ("the [MASK]\n[MASK] cat", ["cat", "see"], "the cat\nsee cat"),
        ("The cat ", ["##s", "."], "The cats."),
        ("", ["##s", "a"], "s a"),
    ],
)
def test_replace_masks_leaves_the_rest_as_written(text, tokens, expected):
    pieces = ["the", "cat", "see", "sees", "a", "b", "##b", "##s", "q", ".", ",", "(", ")"]
    made = Tokenizer(build_wordpiece([*SPECIALS, *pieces]))
    ids = made.encode_batch([text], escape=False)[0]
    ids = ids if MASK in ids else [*ids, *[MASK] * len(tokens)]
    places = [i for i, token in enumerate(ids) if token == MASK]
    for place, token in zip(places, tokens, strict=True):
        ids[place] = made.vocab.index(token)
    assert masked.replace_masks(made, text, ids, places) == expected
