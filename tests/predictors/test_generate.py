"""`predict generate` against a plain loop that reads the whole text for each token, and against
transformers.
"""

import functools
import json
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.interop import runs
from bert_jax.predictors import generate
from bert_jax.predictors.generate import Draw
from tests import marks, reference, variants
from tests.predictors import drawing
from tests.suites.masked import read_logits

PROMPTS = ["the cat sees", "", "abc ", "abc de . the fghij", "the cats see . abcde", "the cat sees"]
MOST = 8
NEAR = {"position": "rotary", "rotary_base_near": 20, "first_norm": False}
MODELS: dict[str, dict[str, Any]] = reference.VARIANTS | {
    "two_bases": reference.VARIANTS["window"] | reference.VARIANTS["pre_norm"] | NEAR,
    "from_row_2": {"max_positions": 42, "first_position": 2, "type_vocab": 1},
}
QUICK = ("learned", "two_bases")


def make_model(name: str) -> runs.TrainedModel:
    settings = {f"model__{key}": value for key, value in MODELS[name].items()}
    return drawing.make_model(**drawing.CAUSAL | settings)


def generate_plainly(run: runs.TrainedModel, text: str) -> tuple[list[int], str]:
    """The tokens a text goes on with, the whole row read for each, and why it ends."""
    special = run.tokenizer.special
    ids = [special.cls, *run.tokenizer.encode_batch([text])[0]]
    found: list[int] = []
    while len(found) < MOST:
        row = [*ids, *found]
        scores = read_logits(run, [row], 40, "causal_lm")[0, len(row) - 1]
        scores[[special.pad, special.unk, special.cls, special.mask]] = -np.inf
        found.append(int(scores.argmax()))
        if found[-1] == special.sep:
            return found[:-1], "end"
    return found, "length"


# --- token for token ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", marks.mark_slow(MODELS, QUICK))
def test_generate_equals_a_plain_loop(name):
    run = make_model(name)
    found = drawing.generate(run, PROMPTS, max_tokens=MOST)
    for text, row in zip(PROMPTS, found, strict=True):
        ids, stopped = generate_plainly(run, text)
        before = run.tokenizer.encode_batch([text])[0]
        said, whole = (run.tokenizer.readable(some) for some in (before, [*before, *ids]))
        more = whole.removeprefix(said)
        assert row["stopped"] == stopped
        assert row["continuation"] == (more.lstrip() if text.endswith(" ") else more)
        assert row["text"] == text + row["continuation"]
    assert found[0] == found[-1]
    assert len({row["continuation"] for row in found}) > 2  # it does depend on the prompt


def test_generate_equals_transformers():
    run = drawing.open_golden("causal_lm")
    rows = json.loads((variants.GOLDEN / "pipelines.json").read_text())["generate"]
    found = drawing.generate(run, [row["text"] for row in rows])
    ids = {piece: number for number, piece in enumerate(run.tokenizer.vocab)}
    for row, one in zip(rows, found, strict=True):
        pieces = row["tokens"]
        before = run.tokenizer.encode_batch([row["text"]])[0]
        assert one["stopped"] == ("end" if pieces[-1] == "[SEP]" else "length")
        more = [ids[piece] for piece in pieces if piece != "[SEP]"]
        whole = run.tokenizer.readable([*before, *more])
        assert whole == run.tokenizer.readable(before) + one["continuation"]
    assert {one["stopped"] for one in found} == {"end", "length"}


def test_generate_stops_when_all_rows_end(monkeypatch):
    rows = json.loads((variants.GOLDEN / "pipelines.json").read_text())["generate"]
    ending = [row for row in rows if row["tokens"][-1] == "[SEP]"]
    steps_taken: list[int] = []
    choose = generate.choose_token

    def count_steps(logits, keys, draw):
        jax.debug.callback(lambda: steps_taken.append(1))
        return choose(logits, keys, draw)

    monkeypatch.setattr(generate, "choose_token", count_steps)
    drawing.generate(drawing.open_golden("causal_lm"), [row["text"] for row in ending])
    jax.effects_barrier()
    longest = max(len(row["tokens"]) for row in ending)
    assert len(steps_taken) == longest < generate.TOKENS


# --- one token; the net has what is drawn by a seed -----------------------------------------------


def filtered(scores: np.ndarray, draw: Draw) -> np.ndarray:
    """Scores at a temperature, -inf where a filter drops a token; in float64, token by token."""
    scores = scores / draw.temperature
    order = sorted(range(len(scores)), key=lambda token: -scores[token])
    kept = set(order[: draw.top_k or None])
    weights = {token: np.exp(scores[token] - scores[order[0]]) for token in order if token in kept}
    reached = 0.0
    for token in order:
        if token in kept:
            if reached >= draw.top_p * sum(weights.values()):
                kept.remove(token)
            reached += weights[token]
    return np.array([score if token in kept else -np.inf for token, score in enumerate(scores)])


@pytest.mark.parametrize(
    "draw",
    [Draw(0.8), Draw(2.0, top_k=6, top_p=0.5), Draw(1.0, top_k=1), Draw(1.0, top_p=1e-9)],
    ids=["all", "filters", "one by rank", "one by share"],
)
def test_choose_token_draws_by_probability(draw):
    scores = np.random.default_rng(4).normal(size=9).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 20_000)
    rows = np.broadcast_to(scores, (len(keys), 9))
    choose = jax.jit(functools.partial(generate.choose_token, draw=draw))
    drawn = np.bincount(np.asarray(choose(rows, keys)), minlength=9)
    weights = np.exp(filtered(scores.astype(np.float64), draw))
    expected = weights / weights.sum()
    assert (drawn[expected == 0] == 0).all()
    deviation = np.sqrt(len(keys) * expected * (1 - expected))
    assert (np.abs(drawn - len(keys) * expected) <= 4 * deviation).all()
