"""`predict generate` against a plain loop that reads the whole text for each token, and against
transformers.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import encoding
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.predictors import generate, stream
from bert_jax.predictors.generate import Draw
from bert_jax.predictors.options import Options
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy, variants
from tests.predictors.drawing import filtered, tokenizer

GOLDEN = variants.GOLDEN / "huggingface"
CAUSAL = {
    "objectives__causal_lm__weight": 1,
    "model__causal": "true",
    "pairs": "none",
    "checkpoints__best": "",
}
CAUSAL |= {"model__max_positions": 40, "sequence_length": 40, "model__init_stddev": 0.4}
PROMPTS = ["the cat sees", "", "cat", "abc de . the fghij", "the cats see . abcde", "the cat sees"]
MOST = 12
MODELS: dict[str, dict[str, object]] = {
    "learned": {},
    "sinusoidal": {"position": "sinusoidal", "norm": "pre", "gated": "true", "scan": "true"},
    "rotary": {"position": "rotary", "norm": "pre", "window": 3, "layers": 1},
    "alibi": {"position": "alibi", "window": 2, "global_every": 2},
    "of two bases": {
        "position": "rotary",
        "rotary_base_near": 20,
        "window": 3,
        "global_every": 2,
        "first_norm": "false",
        "norm": "pre",
    },
    "of distances": {
        "position": "relative",
        "position_buckets": 4,
        "max_positions": 9,
        "norm": "pre",
        "layer_weights": "true",
        "attention_gate": "true",
        "inner_norm": "true",
    },
    "from row 2": {"max_positions": 42, "first_position": 2, "type_vocab": 1},
}


@functools.cache
def model(name: str, **changes: object) -> runs.TrainedModel:
    """Random weights."""
    settings = {f"model__{key}": value for key, value in (MODELS[name] | changes).items()}
    config = toy.config(**CAUSAL | settings)
    params = toy.init(config, seed=1, vocab=tokenizer().size)
    return runs.TrainedModel(Path("model"), config, tokenizer(), Path("vocab.txt"), params, 0, {})


@functools.cache
def logits_of(cfg: knobs.Model) -> Any:
    net = network.Network(cfg, tokenizer().size, (("causal_lm", 0),))
    return jax.jit(lambda params, batch: network.outputs(net, params, batch)["causal_lm"])


def plainly(
    run: runs.TrainedModel, text: str, number: int, draw: Draw, most: int = MOST
) -> tuple[list[int], str]:
    """The tokens a text goes on with, the whole row read for each, and why it ends."""
    special, length = run.tokenizer.special, run.config.sequence_length
    ids = [special.cls, *run.tokenizer.encode_batch([text])[0]]
    key = jax.random.fold_in(jax.random.key(draw.seed, impl="threefry2x32"), number)
    found: list[int] = []
    while len(found) < most:
        batch = {
            name: np.zeros((1, length), np.int32)
            for name in ("tokens", "type_ids", "positions", "segment_ids")
        }
        row = [*ids, *found]
        batch["tokens"][0, : len(row)] = row
        batch["positions"][0, : len(row)] = range(len(row))
        batch["segment_ids"][0, : len(row)] = 1
        scores = np.asarray(
            logits_of(run.config.model)(
                run.params, batch | {"cls_positions": np.zeros((1, 1), np.int32)}
            )
        )
        scores = scores[0, len(row) - 1, : run.tokenizer.size].astype(np.float64)
        scores[[special.pad, special.unk, special.cls, special.mask]] = -np.inf
        if draw.temperature:
            noise = jax.random.gumbel(jax.random.fold_in(key, len(found)), (run.tokenizer.size,))
            scores = filtered(scores, draw) + np.asarray(noise, np.float64)
        found.append(int(scores.argmax()))
        if found[-1] == special.sep:
            return found[:-1], "end"
    return found, "length"


def asked(run: runs.TrainedModel, texts: list[str], **options: Any) -> list[dict[str, Any]]:
    made = stream.Model(run, Options(**{"max_tokens": MOST, **options}))
    return list(stream.predict(made, "generate", texts))


def check(run: runs.TrainedModel, found: list[dict[str, Any]], draw: Draw) -> set[str]:
    """Each row is what the plain loop says; how the rows ended."""
    for number, (text, row) in enumerate(zip(PROMPTS, found, strict=True), 1):
        ids, stopped = plainly(run, text, number, draw)
        before = run.tokenizer.encode_batch([text])[0]
        said = (run.tokenizer.readable(before), run.tokenizer.readable([*before, *ids]))
        assert row["stopped"] == stopped
        assert said[0] + row["continuation"] == said[1]
        assert row["text"] == text + row["continuation"]
    return {row["stopped"] for row in found}


# --- token for token ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [n if n in ("learned", "rotary") else pytest.param(n, marks=pytest.mark.slow) for n in MODELS],
)
def test_generate_equals_a_plain_loop(name):
    run = model(name)
    together = asked(run, PROMPTS)
    check(run, together, Draw())
    assert together[0] == together[-1]
    assert len({row["continuation"] for row in together}) > 2  # it does depend on the prompt


@pytest.mark.parametrize(
    "draw",
    [Draw(1.0), Draw(1.6, top_p=0.7, seed=2), Draw(1.3, top_k=12, top_p=0.8, seed=3)],
    ids=["all", "top-p", "both"],
)
def test_generate_draws_as_a_plain_loop(draw):
    run = model("rotary")
    options = {
        key: value
        for key, value in dataclasses.asdict(draw).items()
        if value != getattr(Draw(), key)
    }
    together = asked(run, PROMPTS, **options)
    check(run, together, draw)
    assert together[0] != together[-1]  # the same prompt in another line draws for itself


def test_generate_equals_transformers():
    folder, rows = (
        GOLDEN / "causal_lm",
        json.loads((variants.GOLDEN / "pipelines.json").read_text())["generate"],
    )
    run = runs.open_run(str(folder), tokenizer=str(GOLDEN / "pretraining" / "vocab.txt"))
    found = asked(run, [row["text"] for row in rows], max_tokens=None)
    ids = {piece: number for number, piece in enumerate(run.tokenizer.vocab)}
    for row, one in zip(rows, found, strict=True):
        pieces = row["tokens"]
        before = run.tokenizer.encode_batch([row["text"]])[0]
        assert one["stopped"] == ("end" if pieces[-1] == "[SEP]" else "length")
        more = [ids[piece] for piece in pieces if piece != "[SEP]"]
        whole = run.tokenizer.readable([*before, *more])
        assert whole == run.tokenizer.readable(before) + one["continuation"]
    assert {one["stopped"] for one in found} == {"end", "length"}


@pytest.mark.parametrize(
    "draw", [Draw(0.8), Draw(1.0, top_k=3), Draw(1.0, top_p=0.6), Draw(2.0, top_k=6, top_p=0.5)]
)
def test_choose_draws_tokens_by_probability(draw):
    scores = np.random.default_rng(4).normal(size=9).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 20_000)
    rows = np.broadcast_to(scores, (len(keys), 9))
    drawn = np.bincount(
        np.asarray(jax.jit(functools.partial(generate.choose, draw=draw))(rows, keys)), minlength=9
    )
    weights = np.exp(filtered(scores.astype(np.float64), draw))
    expected = weights / weights.sum()
    assert (drawn[expected == 0] == 0).all()
    deviation = np.sqrt(len(keys) * expected * (1 - expected))
    assert (np.abs(drawn - len(keys) * expected) <= 4 * deviation).all()


def test_choose_always_leaves_the_likeliest():
    scores = np.array([[0.0, 9.0, 0.0], [5.0, 0.0, 0.0]], np.float32)
    keys = jax.random.split(jax.random.key(0), 2)
    assert generate.choose(scores, keys, Draw(1.0, top_p=1e-9)).tolist() == [1, 0]
    assert generate.choose(scores, keys, Draw(1.0, top_k=1)).tolist() == [1, 0]


# --- the loop -------------------------------------------------------------------------------------


def test_generate_stops_when_all_rows_end(monkeypatch):
    steps_taken: list[int] = []
    choose = generate.choose

    def counting(logits, keys, draw):
        jax.debug.callback(lambda: steps_taken.append(1))
        return choose(logits, keys, draw)

    monkeypatch.setattr(generate, "choose", counting)
    found = asked(memorised(True), ["the cat sees abc", "the cat"], max_tokens=32)
    jax.effects_barrier()
    assert [one["stopped"] for one in found] == ["end", "end"]
    left = len(tokenizer().encode_batch([LINE])[0]) - 2  # after the shorter prompt
    assert len(steps_taken) == left + 1 < 32  # and the end


# --- learning -------------------------------------------------------------------------------------

LINE = "the cat sees abcdef , the cats see ( a ) . jihg"


@functools.cache
def memorised(end: bool) -> runs.TrainedModel:
    """A model that has learnt one line by heart."""
    small = {
        "model__init_stddev": 0.1,
        "model__layers": 1,
        "batch_size": 4,
        "optim__learning_rate": 1e-2,
    }
    config = toy.config(**CAUSAL | small, objectives__causal_lm__end=end)
    ids = tokenizer().encode_batch([LINE])
    batch = encoding.pad_rows(
        tokenizer().special, [ids] * config.batch_size, config.sequence_length
    )
    text = (batch["segment_ids"] > 0) & ~np.isin(batch["tokens"], tokenizer().special)
    batch["unit_ids"] = np.where(text, np.arange(config.sequence_length), -1).astype(np.int32)
    update = jax.jit(make_update(config, tokenizer().special, tokenizer().size))
    state = jax.jit(lambda seed: init_state(config, tokenizer().size, seed))(np.uint32(0))
    for number in range(60):
        state, metrics = update(state, batch, compute_inputs(config, number))
    assert float(metrics["loss"][0]) < 0.1
    return runs.TrainedModel(
        Path("m"), config, tokenizer(), Path("v"), jax.device_get(state["params"]), 60, {}
    )


def test_generate_recites_a_memorised_line():
    run = memorised(True)
    for text in ("", "the cat sees abc", "the"):
        (found,) = asked(run, [text], max_tokens=30)
        assert found == {
            "text": "the cat sees abcdef, the cats see (a). jihg",
            "stopped": "end",
        } | {"continuation": found["continuation"]}
    (found,) = asked(run, ["the cat sees abc"], max_tokens=5)
    assert found == {
        "text": "the cat sees abcdef, the",
        "continuation": "def, the",
        "stopped": "length",
    }
