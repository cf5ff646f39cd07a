"""`predict generate` of masked models: against a source whose conditionals are known, and against a
plain loop over rounds.
"""

from __future__ import annotations

import functools
import operator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from scipy import stats

from bert_jax.data.engines import build_wordpiece
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.predictors import masked, stream
from bert_jax.predictors.generate import Draw
from bert_jax.predictors.options import Options
from tests import markov, toy, variants
from tests.predictors.drawing import filtered, tokenizer

MASK = toy.SPECIAL.mask
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


def generated(
    text: np.ndarray, count: int, steps: int, draw: Draw, *, random: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Texts [count, 6] from one in which -1 is a mask, by the source's own conditionals, and the
    rounds of its masks.
    """
    places = np.flatnonzero(text < 0).tolist()
    rows = markov.rows(np.broadcast_to(text, (count, markov.LENGTH)))
    masks = masked.Masks.build([places] * count, range(1, count + 1), steps, (count, len(places)))
    rows[rows == markov.FIRST - 1] = MASK
    found = jax.device_get(
        jax.jit(
            functools.partial(
                masked.reveal,
                markov.logits_of,
                most=-(-len(places) // steps),
                draw=draw,
                random=random,
            )
        )(rows, masks)
    )
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


@pytest.mark.parametrize(
    ("text", "random", "seed"),
    [
        (NOTHING, True, 0),
        (PARTLY, False, 0),
        pytest.param(NOTHING, False, 1, marks=pytest.mark.slow),
        pytest.param(PARTLY, True, 1, marks=pytest.mark.slow),
    ],
)
def test_reveal_draws_from_the_joint_distribution(text, random, seed):
    masks = int((text < 0).sum())
    found, rounds = generated(text, 20_000, masks, Draw(1.0, seed=seed), random=random)
    assert how_likely(text, found) > 0.01
    assert (np.sort(rounds) == np.arange(masks)).all()
    assert (found[:, text >= 0] == text[text >= 0]).all()


@pytest.mark.parametrize("steps", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_reveal_of_several_masks_a_round_does_not(steps):
    found, _ = generated(NOTHING, 20_000, steps, Draw(1.0), random=True)
    assert how_likely(NOTHING, found) < 1e-9
    # What is wrong is how tokens go together: each by itself is as likely as it should be.
    if steps == 1:
        for place in range(markov.LENGTH):
            counts = np.bincount(found[:, place], minlength=markov.SYMBOLS)
            chances = markov.conditionals(NOTHING, NOTHING < 0)[place]
            assert stats.chisquare(counts, len(found) * chances).pvalue > 0.01


def test_reveal_takes_random_orders_equally_often():
    text = np.array([0, -1, -1, 1, -1, 0])
    _, rounds = generated(text, 12_000, 3, Draw(), random=True)
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
    found, rounds = generated(PARTLY, 2, 4, Draw(), random=False)
    assert (found == text).all()
    assert np.flatnonzero(PARTLY < 0)[np.argsort(rounds[0])].tolist() == order
    greedy, _ = generated(PARTLY, 2, 4, Draw(1.0, top_k=1), random=False)
    assert (greedy == text).all()
    greedy, _ = generated(PARTLY, 2, 4, Draw(1.0, top_p=1e-6), random=False)
    assert (greedy == text).all()


# --- counts ---------------------------------------------------------------------------------------


@hypothesis.given(st.integers(1, 600), st.none() | st.integers(1, 700))
def test_schedule_rounds_is_as_even_as_can_be(masks, steps):
    counts = masked.schedule_rounds(masks, steps)
    assert len(counts) == min(steps or masks, masks)
    assert counts.sum() == masks
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


# --- a network ------------------------------------------------------------------------------------


@functools.cache
def model(**changes: object) -> runs.TrainedModel:
    """Random weights."""
    small = {"pairs": "none", "model__max_positions": 40, "sequence_length": 40}
    config = toy.config(**small, model__init_stddev=0.4, **changes)
    params = toy.init(config, seed=1, vocab=tokenizer().size)
    return runs.TrainedModel(Path("model"), config, tokenizer(), Path("vocab.txt"), params, 0, {})


def asked(run: runs.TrainedModel, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    made = stream.Model(run, Options(**{"max_tokens": MOST, **options}))
    return list(stream.predict(made, "generate", texts))


@functools.cache
def compiled() -> Any:
    run = model()
    net = network.Network(run.config.model, run.tokenizer.size, (("mlm", 0),))
    return jax.jit(lambda params, batch: network.outputs(net, params, batch)["mlm"])


def plainly(text: str, number: int, draw: Draw, steps: int | None, order: str) -> list[list[dict]]:
    """The rounds of a line, one row of 40 columns at a time and each mask by itself."""
    run, special = model(), tokenizer().special
    ids = run.tokenizer.encode_batch([text], escape=False)[0]
    ids = ids if MASK in ids else [*ids, *[MASK] * MOST]
    places = [i for i, token in enumerate(ids) if token == MASK]
    line = jax.random.fold_in(jax.random.key(draw.seed, impl="threefry2x32"), number)
    orders, draws = (jax.random.fold_in(line, part) for part in (0, 1))
    shuffled = [float(jax.random.uniform(jax.random.fold_in(orders, k))) for k in range(len(ids))]
    rounds = min(steps or len(places), len(places))
    found: list[list[dict]] = []
    for step in range(rounds):
        batch = {
            name: np.zeros((1, 40), np.int32)
            for name in ("tokens", "type_ids", "positions", "segment_ids", "predict_positions")
        }
        row = [special.cls, *ids, special.sep]
        batch["tokens"][0, : len(row)] = row
        batch["positions"][0, : len(row)] = range(len(row))
        batch["segment_ids"][0, : len(row)] = 1
        batch["predict_positions"][0] = range(40)
        logits = np.asarray(compiled()(run.params, batch))[0, 1:, : run.tokenizer.size]
        logits = logits.astype(np.float64)
        logits[:, list(special)] = -np.inf
        chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        left = [slot for slot, place in enumerate(places) if ids[place] == MASK]
        by = shuffled if order == "random" else [chances[place].max() for place in places]
        count = len(places) * (step + 1) // rounds - len(places) * step // rounds
        found.append([])
        for slot in sorted(left, key=lambda slot: -by[slot])[:count]:
            scores = logits[places[slot]]
            if draw.temperature:
                key = jax.random.fold_in(draws, slot)
                noise = np.asarray(jax.random.gumbel(key, (run.tokenizer.size,)), np.float64)
                scores = filtered(scores, draw) + noise
            token = int(scores.argmax())
            ids[places[slot]] = token
            found[-1].append(
                {
                    "place": places[slot],
                    "token": run.tokenizer.vocab[token],
                    "probability": chances[places[slot], token],
                }
            )
    return found


@pytest.mark.parametrize(
    ("draw", "steps", "order"),
    [
        (Draw(), None, ""),
        (Draw(), 2, ""),
        (Draw(seed=5), 3, "random"),
        (Draw(1.3, top_k=12, top_p=0.8, seed=3), 3, "confident"),
        (Draw(1.0), None, "random"),
    ],
    ids=["greedy", "two rounds", "random places", "filters", "ancestral"],
)
def test_unmask_equals_a_plain_loop(draw, steps, order):
    options = {"temperature": draw.temperature, "steps": steps, "order": order}
    options |= {"top_k": draw.top_k or None, "top_p": draw.top_p if draw.top_p < 1 else None}
    found = asked(model(), TEXTS, **options, seed=draw.seed or None, show_steps=True)
    for number, (text, row) in enumerate(zip(TEXTS, found, strict=True), 1):
        wanted = plainly(text, number, draw, steps, order)
        for ours, theirs in zip(row["steps"], wanted, strict=True):
            by_place = (sorted(step, key=operator.itemgetter("place")) for step in (ours, theirs))
            for one, other in zip(*by_place, strict=True):
                assert one == other | {"probability": pytest.approx(other["probability"], 1e-4)}


def test_unmask_steps_replay_to_the_final_text():
    run = model()
    for text, row in zip(TEXTS, asked(run, TEXTS, steps=2, show_steps=True), strict=True):
        ids = run.tokenizer.encode_batch([text], escape=False)[0]
        tokens = [run.tokenizer.vocab[i] for i in ids]
        tokens += [] if "[MASK]" in tokens else ["[MASK]"] * MOST
        for revealed in row["steps"]:
            for one in revealed:
                assert tokens[one["place"]] == "[MASK]"
                tokens[one["place"]] = one["token"]
                assert 0 < one["probability"] <= 1
        assert tokens == row["tokens"]
        assert not set(tokens) & {"[MASK]", "[PAD]", "[CLS]", "[SEP]"}
        letters = "".join(token.removeprefix("##") for token in tokens)
        assert "".join(row["text"].split()) == letters


def test_unmask_never_writes_special_tokens():
    """However likely the network finds them."""
    run = model()
    bias = np.zeros_like(run.params["mlm"]["bias"])
    bias[list(tokenizer().special)] = 50
    mlm = {**run.params["mlm"], "bias": bias}
    wild = runs.TrainedModel(
        run.folder, run.config, run.tokenizer, run.tokenizer_path, run.params | {"mlm": mlm}, 0, {}
    )
    for row in asked(wild, TEXTS, temperature=2.0, show_steps=True):
        names = {one["token"] for revealed in row["steps"] for one in revealed}
        assert names
        assert not names & set(tokenizer().vocab[:5])


def test_unmask_adds_masks_as_there_is_room():
    (found,) = asked(model(), ["the cat " * 10], max_tokens=None, show_steps=True, steps=1)
    assert len(found["tokens"]) == 38  # 40 with [CLS] and [SEP]
    assert found["tokens"][:20] == ["the", "cat"] * 10


def test_unmask_refuses_a_long_text_by_its_line():
    with pytest.raises(
        DataError,
        match=r"line 2: 37 tokens with \[CLS\] and \[SEP\] and 6 masks behind them, and the model",
    ) as caught:
        asked(model(), ["cat", "cat " * 35])
    assert caught.value.hint == "--max-tokens=3, or a shorter text"
    for text in ("cat " * 39, "[MASK] " * 39, "[MASK]" + " cat" * 38):
        with pytest.raises(DataError, match="line 1: 41 tokens") as caught:
            asked(model(), [text])
        assert caught.value.hint == "shorten the text"
    (found,) = asked(model(), ["[MASK] " * 38])
    assert "[MASK]" not in found["text"]


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("The Cat [MASK] the  (Q) .", ["sees"], "The Cat sees the  (Q) ."),
        ("the cat[MASK]", ["##s"], "the cats"),
        ("the cat [MASK] see", ["##s"], "the cats see"),
        ("the cat [MASK] see", [","], "the cat, see"),
        ("[MASK] [MASK] [MASK]", ["a", "##b", "."], "ab."),
        ("the[MASK][MASK].", ["cat", "see"], "the cat see."),
        ("the [MASK]\n[MASK] cat", ["cat", "see"], "the cat\nsee cat"),
        ("([MASK]) a", ["cat"], "(cat) a"),
        ("The cat ", ["sees", "a"], "The cat sees a"),
        ("The cat", [",", "a"], "The cat, a"),
        ("The cat ", ["##s", "."], "The cats."),
        ("", ["##s", "a"], "s a"),
        (" \t", ["cat"], " \tcat"),
    ],
)
def test_replace_masks_leaves_the_rest_as_written(text, tokens, expected):
    pieces = ["the", "cat", "see", "sees", "a", "b", "##b", "##s", "q", ".", ",", "(", ")"]
    made = Tokenizer(build_wordpiece([*tokenizer().vocab[:5], *pieces]))
    ids = made.encode_batch([text], escape=False)[0]
    ids = ids if MASK in ids else [*ids, *[MASK] * len(tokens)]
    places = [i for i, token in enumerate(ids) if token == MASK]
    for place, token in zip(places, tokens, strict=True):
        ids[place] = made.vocab.index(token)
    assert masked.replace_masks(made, text, ids, places) == expected


# --- fill-mask in windows -------------------------------------------------------------------------


@pytest.mark.parametrize(("stride", "meaning"), [(7, "step"), (12, "overlap")])
def test_fill_mask_sees_most_around_each_mask(stride, meaning):
    """Each mask answered as in a text that is just its window, found by trying all of them."""
    run = runs.open_run(str(MODEL))
    words = [w for i in range(30) for w in ("the", "cat", "sat", "big")[: 2 + i % 3]]
    words[5::9] = ["[MASK]"] * len(words[5::9])
    options = Options(top_k=2, long="windows", stride=stride, stride_as=meaning, batch_size=3)
    (found,) = stream.predict(stream.Model(run, options), "fill-mask", [" ".join(words)])
    (ids,) = run.tokenizer.encode_batch([" ".join(words)], escape=False)
    room = run.config.sequence_length - 2
    assert len(ids) > 2 * room
    step = stride if meaning == "step" else room - stride
    spans = [
        (a, min(a + room, len(ids)))
        for a in range(0, len(ids), step)
        if a == 0 or a - step + room < len(ids)
    ]

    def is_better(span: tuple[int, int], place: int) -> tuple[float, int]:
        around = min(place - span[0], span[1] - 1 - place)
        return around + 0.01 * (span[1] - span[0]), -span[0]

    alone = stream.Stream(stream.Model(run, Options(top_k=2, batch_size=1)), "fill-mask")
    at = [i for i, token in enumerate(ids) if token == run.tokenizer.special.mask]
    assert len(found["masks"]) == len(at)
    for place, answer in zip(at, found["masks"], strict=True):
        around = [span for span in spans if span[0] <= place < span[1]]
        a, b = max(around, key=lambda span, place=place: is_better(span, place))
        text = "".join(run.tokenizer.decode(ids[a:b]))
        assert run.tokenizer.encode_batch([text], escape=False) == [ids[a:b]]
        (row,) = alone.answer([text])
        mine = row["masks"][sum(t == run.tokenizer.special.mask for t in ids[a:place])]
        assert [o["token"] for o in answer] == [o["token"] for o in mine]
        probabilities = [o["probability"] for o in mine]
        assert [o["probability"] for o in answer] == pytest.approx(probabilities, rel=1e-4)
