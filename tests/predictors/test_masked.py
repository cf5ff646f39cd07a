"""`predict generate` of masked models: against a source of known conditionals, and a plain loop."""

import functools
import operator

import jax
import numpy as np
import pytest
from scipy import stats

from bert_jax.data.engines import SPECIALS, build_wordpiece
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.predictors import generate, masked
from tests import markov, reference, tiny
from tests.predictors import drawing
from tests.suites.masked import read_logits

MASK = tiny.SPECIAL.mask
MOST = 6
TEXTS = ["the [MASK] sees [MASK] .", "", "[MASK] [MASK] [MASK]", "the cat"]
TEXTS += ["a (b [MASK] [MASK] c [MASK] [MASK] [MASK])", TEXTS[0]]


# --- a source that can be enumerated --------------------------------------------------------------


NOTHING = np.full(markov.LENGTH, -1)
PARTLY = np.array([-1, 2, -1, -1, 0, -1])


@pytest.mark.parametrize(("text", "random"), [(NOTHING, True), (PARTLY, False)])
def test_reveal_draws_from_the_joint_distribution(text, random):
    """By the source's own conditionals, one mask (-1) a round; rare texts are left out."""
    count, places = 20_000, np.flatnonzero(text < 0).tolist()
    texts = np.tile(text, (count, 1))
    rows = markov.rows(texts)
    rows[rows == markov.FIRST - 1] = MASK
    masks = masked.Masks.build([places] * count, range(1, count + 1), None, (count, len(places)))
    settings = {"most": 1, "draw": generate.Draw(1.0), "random": random}
    reveal = jax.jit(functools.partial(masked.reveal, markov.logits_of, **settings))
    found = jax.device_get(reveal(rows, masks))
    assert (np.sort(found.rounds) == np.arange(len(places))).all()
    if random:  # each place is the first one equally often
        assert stats.chisquare(np.bincount(found.rounds.argmin(1))).pvalue > 0.01
    texts[:, places] = found.tokens - markov.FIRST
    codes = (texts @ markov.SYMBOLS ** np.arange(markov.LENGTH)[::-1]).astype(int)
    counts = np.bincount(codes, minlength=len(markov.TEXTS))
    fits = ((text == markov.TEXTS) | (text < 0)).all(1)
    assert not counts[~fits].any()
    often = fits & (count * markov.CHANCES / markov.CHANCES[fits].sum() >= 5)
    expected = counts[often].sum() * markov.CHANCES[often] / markov.CHANCES[often].sum()
    assert stats.chisquare(counts[often], expected).pvalue > 0.01


# --- a network ------------------------------------------------------------------------------------


def unmask_plainly(text: str, steps: int | None) -> tuple[list[list[dict]], list[str]]:
    """The rounds of a line, each mask by itself, and the tokens of its final text."""
    run = drawing.make_model()
    tokenizer, special = run.tokenizer, run.tokenizer.special
    ids = tokenizer.encode_batch([text], escape=False)[0]
    ids = ids if MASK in ids else [*ids, *[MASK] * MOST]
    places = [i for i, token in enumerate(ids) if token == MASK]
    rounds = min(steps or len(places), len(places))
    found: list[list[dict]] = []
    for step in range(rounds):
        logits = read_logits(run, [[special.cls, *ids, special.sep]], 40)[0, 1:]
        logits[:, list(special)] = -np.inf
        chances = reference.softmax(logits)
        left = [place for place in places if ids[place] == MASK]
        count = len(places) * (step + 1) // rounds - len(places) * step // rounds
        found.append([])
        for place in sorted(sorted(left, key=lambda place: -chances[place].max())[:count]):
            ids[place] = int(chances[place].argmax())
            shown = {"place": place, "token": tokenizer.vocab[ids[place]]}
            found[-1].append(shown | {"probability": pytest.approx(chances[place].max(), 1e-4)})
    return found, [tokenizer.vocab[i] for i in ids]


@pytest.mark.parametrize("steps", [2, None])
def test_unmask_equals_a_plain_loop(steps):
    """The surest first; the net has random places and tokens that are drawn by a seed."""
    options = {"max_tokens": MOST, "steps": steps, "show_steps": True}
    found = drawing.generate(drawing.make_model(), TEXTS, **options)
    for text, row in zip(TEXTS, found, strict=True):
        rounds, tokens = unmask_plainly(text, steps)
        ours = [sorted(step, key=operator.itemgetter("place")) for step in row["steps"]]
        assert ours == rounds
        assert row["tokens"] == tokens
        letters = "".join(token.removeprefix("##") for token in tokens)
        assert "".join(row["text"].split()) == letters


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
