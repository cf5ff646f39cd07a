"""`predict generate` of masked models: against a source of known conditionals, and a plain loop."""

import dataclasses
import functools
import operator

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from scipy import stats

from bert_jax.api import Model
from bert_jax.data.engines import SPECIALS, build_wordpiece
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.interop import runs
from bert_jax.predictors import masked
from bert_jax.predictors.generate import Draw
from tests import markov, tiny, variants
from tests.predictors import drawing
from tests.reference import softmax
from tests.suites.masked import read_logits

MASK = tiny.SPECIAL.mask
MODEL = variants.GOLDEN / "huggingface" / "pretraining"
MOST = 6
TEXTS = [
    "the [MASK] sees [MASK] .",
    "",
    "[MASK] [MASK] [MASK]",
    "the cat",
    "a (b [MASK] [MASK] c [MASK] [MASK] [MASK])",
    "the [MASK] sees [MASK] .",
]


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


# --- a network ------------------------------------------------------------------------------------


def unmask_plainly(
    text: str, number: int, draw: Draw, steps: int | None, order: str
) -> tuple[list[list[dict]], list[str]]:
    """The rounds of a line, each mask by itself, and the tokens of its final text."""
    run = drawing.make_model()
    tokenizer, special = run.tokenizer, run.tokenizer.special
    ids = tokenizer.encode_batch([text], escape=False)[0]
    ids = ids if MASK in ids else [*ids, *[MASK] * MOST]
    places = [i for i, token in enumerate(ids) if token == MASK]
    line = jax.random.fold_in(jax.random.key(draw.seed, impl="threefry2x32"), number)
    orders, draws = (jax.random.fold_in(line, part) for part in (0, 1))
    shuffled = [float(jax.random.uniform(jax.random.fold_in(orders, k))) for k in range(len(ids))]
    rounds = min(steps or len(places), len(places))
    found: list[list[dict]] = []
    for step in range(rounds):
        logits = read_logits(run, [[special.cls, *ids, special.sep]], 40)[0, 1:]
        logits[:, list(special)] = -np.inf
        chances = softmax(logits)
        left = [slot for slot, place in enumerate(places) if ids[place] == MASK]
        by = shuffled if order == "random" else [chances[place].max() for place in places]
        count = len(places) * (step + 1) // rounds - len(places) * step // rounds
        found.append([])
        for slot in sorted(left, key=lambda slot: -by[slot])[:count]:
            place = places[slot]
            scores = logits[place]
            if draw.temperature:
                key = jax.random.fold_in(draws, slot)
                noise = np.asarray(jax.random.gumbel(key, (tokenizer.size,)), np.float64)
                scores = drawing.filtered(scores, draw) + noise
            ids[place] = int(scores.argmax())
            shown = {"place": place, "token": tokenizer.vocab[ids[place]]}
            found[-1].append(shown | {"probability": chances[place, ids[place]]})
    return found, [tokenizer.vocab[i] for i in ids]


@pytest.mark.parametrize(
    ("draw", "steps", "order"),
    [
        (Draw(), 2, ""),
        (Draw(seed=5), 3, "random"),
        (Draw(1.3, top_k=12, top_p=0.8, seed=3), None, "confident"),
    ],
    ids=["greedy", "random places", "filters"],
)
def test_unmask_equals_a_plain_loop(draw, steps, order):
    options = {"temperature": draw.temperature, "steps": steps, "order": order}
    options |= {"top_k": draw.top_k or None, "top_p": draw.top_p if draw.top_p < 1 else None}
    options |= {"seed": draw.seed or None, "max_tokens": MOST, "show_steps": True}
    found = drawing.generate(drawing.make_model(), TEXTS, **options)
    for number, (text, row) in enumerate(zip(TEXTS, found, strict=True), 1):
        rounds, tokens = unmask_plainly(text, number, draw, steps, order)
        for ours, theirs in zip(row["steps"], rounds, strict=True):
            by_place = (sorted(step, key=operator.itemgetter("place")) for step in (ours, theirs))
            for one, other in zip(*by_place, strict=True):
                assert one == other | {"probability": pytest.approx(other["probability"], 1e-4)}
        assert row["tokens"] == tokens
        letters = "".join(token.removeprefix("##") for token in tokens)
        assert "".join(row["text"].split()) == letters


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


# --- fill-mask in windows -------------------------------------------------------------------------


def test_fill_mask_sees_most_around_each_mask():
    """Each mask is answered as in a text that is just its window."""
    run = runs.open_run(str(MODEL))
    words = [w for i in range(30) for w in ("the", "cat", "sat", "big")[: 2 + i % 3]]
    words[5::9] = ["[MASK]"] * len(words[5::9])
    model, text = Model(run), " ".join(words)
    (found,) = model.fill_mask([text], top_k=2, long="windows", stride=12, batch_size=3)
    (ids,) = run.tokenizer.encode_batch([text], escape=False)
    room = run.config.sequence_length - 2
    assert len(ids) > 2 * room
    spans = cut_windows(len(ids), room, 12, "overlap")
    best = choose_windows(spans, len(ids))
    at = [place for place, token in enumerate(ids) if token == MASK]
    assert len({int(best[place]) for place in at}) > 2
    for place, answer in zip(at, found["masks"], strict=True):
        start, end = spans[best[place]].tolist()
        text = run.tokenizer.decode(ids[start:end])
        assert run.tokenizer.encode_batch([text], escape=False) == [ids[start:end]]
        (row,) = model.fill_mask([text], top_k=2, batch_size=1)
        mine = row["masks"][ids[start:place].count(MASK)]
        assert [one["token"] for one in answer] == [one["token"] for one in mine]
        expected = [one["probability"] for one in mine]
        assert [one["probability"] for one in answer] == pytest.approx(expected, rel=1e-4)
