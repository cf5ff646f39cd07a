"""Causal language modelling: what is predicted, from what, and how texts are scored; against plain
statements.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import objectives, suites, train
from bert_jax.config import knobs
from bert_jax.data import pipeline, prepare
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites.token_scores import TokenScorer
from bert_jax.training.step import init_state
from tests import toy
from tests.suites.masked import LONGEST, PIECES, TEXTS

CAUSAL = {
    "model__layers": 1,
    "model__causal": "true",
    "pairs": "none",
    "checkpoints__best": "causal_lm_loss",
}


def config(**changes: object) -> knobs.Config:
    return toy.config(objectives__causal_lm__weight=1, **{**CAUSAL, **changes})


@functools.partial(jax.jit, static_argnums=0)
def _logits(net: network.Network, params: dict, batch: dict) -> jax.Array:
    return network.outputs(net, params, batch)["causal_lm"]


def _init(settings: knobs.Config, vocab_size: int = toy.VOCAB) -> dict:
    return jax.jit(lambda seed: init_state(settings, vocab_size, seed))(np.uint32(0))


def predicted(batch: dict, row: int, end: bool) -> list[tuple[int, int]]:
    """(column, the token after it) of a row: in turn all text, with the end of an example or
    without, and no more.
    """
    found = []
    for column in range(batch["tokens"].shape[1] - 1):
        same = batch["segment_ids"][row, column] == batch["segment_ids"][row, column + 1] > 0
        if same and (end or batch["unit_ids"][row, column + 1] >= 0):
            found.append((column, int(batch["tokens"][row, column + 1])))
    return found


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("examples", [1, 2])
def test_causal_loss_equals_a_plain_sum(examples, end):
    batch = toy.batch(5, 24, seed=3, examples=examples, longest_unit=3)
    logits = np.random.default_rng(0).normal(size=(5, 24, toy.VOCAB)).astype(np.float32)
    losses, hits = [], []
    for row in range(5):
        for column, token in predicted(batch, row, end):
            scores = logits[row, column].astype(np.float64)
            losses.append(np.log(np.exp(scores).sum()) - scores[token])
            hits.append(scores.argmax() == token)
    ends = 5 * examples if end else 0
    assert (
        len(losses) == (batch["unit_ids"] >= 0).sum() + ends
    )  # each once, the first of a text after [CLS]
    objective = objectives.configure(config(objectives__causal_lm__end=end).objectives)["causal_lm"]
    found = {name: (float(a), float(n)) for name, (a, n) in objective.loss(logits, batch).items()}
    assert found["causal_lm_loss"] == (pytest.approx(sum(losses), rel=1e-6), len(losses))
    assert found["causal_lm_accuracy"] == (sum(hits), len(losses))
    assert float(objective.count(batch)["causal_lm"]) == len(losses)


# --- configs --------------------------------------------------------------------------------------


def test_causal_lm_needs_a_causal_model():
    assert list(config().objectives) == ["causal_lm"]
    assert list(toy.config().objectives) == [
        "mlm",
        "nsp",
    ]  # without being asked for, it is not there
    assert not config().masked
    assert toy.config().masked
    with pytest.raises(ConfigError, match="would see the tokens it predicts"):
        config(model__causal="false")
    with pytest.raises(ConfigError, match=r"mlm\.weight = 1\.0 beside objectives\.causal_lm"):
        config(objectives__mlm__weight=1)
    again = config()
    assert configs.resolve(configs.to_dict(again)) == again


# --- updates and evaluations ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("causal")
    line = "the cat sees the dog . the dog sees the cat . cats see dogs . dogs see cats .\n"
    (folder / "text.txt").write_text("\n".join(line * n for n in range(1, 40)))
    changes = {
        "corpus__source": "files",
        "corpus__path": folder / "text.txt",
        "corpus__validation_fraction": 0.3,
    }
    changes |= {
        "steps": 30,
        "optim__learning_rate": 3e-3,
        "evals__validation__every": 0,
        "tokenizer__vocab_size": 60,
    }
    train.run(config(**changes), folder / "run", command=[])
    return folder / "run"


def test_unigram_knows_how_often_a_text_ends(trained):
    run = runs.open_run(str(trained))
    prepared = prepare.prepare_corpus(run.config, log=lambda text: None)
    source = pipeline.Source(prepared, "validation", run.config, seed=0)
    batch = source.evaluation_batch(0, source.examples_per_epoch)
    text = batch["tokens"][batch["unit_ids"] >= 0]
    ends = int(((batch["tokens"] == run.tokenizer.special.sep) & (batch["segment_ids"] > 0)).sum())
    counts = prepared.unigrams.astype(np.float64)
    counts[run.tokenizer.special.sep] = round(counts.sum() * ends / len(text))
    probabilities = (counts + 1) / (counts.sum() + len(counts))
    losses = [
        *-np.log(probabilities[text]),
        *[-np.log(probabilities[run.tokenizer.special.sep])] * ends,
    ]
    found = suites.evaluate(run, "pretrain")
    assert found["unigram_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["causal_lm_predictions"] == len(losses)


# --- scores of texts ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> runs.TrainedModel:
    """A causal model of random weights."""
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text(
        "".join(f"{piece}\n" for piece in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES])
    )
    tokenizer = tokenizers.load(file)
    short = {"model__max_positions": LONGEST, "sequence_length": LONGEST}
    settings = config(model__init_stddev=0.3, **short)
    params = jax.tree.map(np.asarray, _init(settings, tokenizer.size)["params"])
    return runs.TrainedModel(
        Path("model"), settings, tokenizer, file, params, 0, {"foreign": "model"}
    )


def plainly(run: runs.TrainedModel, ids: list[int]) -> list[float]:
    """The log-probability of each token given what precedes it, a row of its own for each."""
    room, step, found = LONGEST - 1, (LONGEST - 1) // 2, []
    for at, token in enumerate(ids):
        start = 0
        while at >= start + room:  # the first window that reaches it
            start += step
        before = [run.tokenizer.special.cls, *ids[start:at]]
        blank = np.zeros((1, LONGEST), np.int32)
        batch = {name: blank.copy() for name in ("tokens", "type_ids", "positions", "segment_ids")}
        batch["tokens"][0, : len(before)] = before
        batch["positions"][0, : len(before)] = range(len(before))
        batch["segment_ids"][0, : len(before)] = 1
        net = network.build(run.config, run.tokenizer.size)
        scores = np.asarray(
            _logits(net, run.params, batch | {"cls_positions": blank[:, :1]}), np.float64
        )
        last = scores[0, len(before) - 1]
        found.append(float(last[token] - np.log(np.exp(last).sum())))
    return found


def test_token_scores_equal_a_plain_loop(run):
    encoded = run.tokenizer.encode_batch(
        [*TEXTS, "abcde fgh the cats see . cat abc de the sees the cat . see cats"]
    )
    assert max(map(len, encoded)) > 2 * LONGEST - 8  # several windows
    for size in (0, 3):
        found = TokenScorer(run, suites.Options("pll", size))([*encoded, []])
        for ids, values in zip([*encoded, []], found, strict=True):
            np.testing.assert_allclose(values, plainly(run, ids), rtol=1e-5)
        np.testing.assert_array_equal(found[0], found[4])
