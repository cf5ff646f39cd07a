"""Runs from the config to the last step: what they learn, and which step is their best.

A run in bfloat16 is held by tests/net/test_matrix.py.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bert_jax import train
from bert_jax.checkpoints.manifest import list_metrics
from bert_jax.config import load_file, override, resolve_and_list_idle
from bert_jax.evaluation import corpus
from tests import outcomes, texts

KINDS = 8  # words that may stand first in a pair, and as many that may stand second
FOLLOWS = 0.8  # how often the second word follows from the first; else it is any of them


def write_source(folder: Path) -> None:
    """Write sentences of a word of eight, mostly the word that belongs to it, and "c d e f".

    Eight sentences are a document, so that no two documents are equal.
    """
    random = np.random.default_rng(0)
    firsts = random.integers(KINDS, size=(4_000, 8))
    others = random.integers(KINDS, size=firsts.shape)
    seconds = np.where(random.random(firsts.shape) < FOLLOWS, firsts, others)
    documents = [
        "\n".join(f"a{first} b{second} c d e f" for first, second in zip(*pairs, strict=True))
        for pairs in zip(firsts, seconds, strict=True)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    names = [f"{kind}{number}" for kind in "ab" for number in range(KINDS)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *names, *"cdef"]))


def compute_entropy() -> float:
    """Return the least loss in nats a masked word: of two in six something is left to guess."""
    likely = FOLLOWS + (1 - FOLLOWS) / KINDS
    unlikely = (1 - FOLLOWS) / KINDS
    given = -likely * math.log(likely) - (KINDS - 1) * unlikely * math.log(unlikely)
    return given / 3


def test_run_learns_the_entropy_of_its_source(tmp_path, one_device):
    """Within 0.03 nats above, and below only by what 3,000 masked words may differ by chance."""
    write_source(tmp_path)
    base = texts.config_file(tmp_path)
    config = texts.configure(
        base,
        corpus__path=tmp_path / "text.txt",
        tokenizer__path=tmp_path / "vocab.txt",
        corpus__validation_fraction=0.1,
        pairs="none",
        sequence_length=8,  # a sentence with [CLS] and [SEP]
        model__hidden=64,
        model__dropout=0,
        model__attention_dropout=0,
        masking__rate=1 / 6,  # one of six words
        masking__replace=(1, 0, 0),
        evals__validation__replace=(1, 0, 0),
        evals__validation__every=0,
        batch_size=256,
        steps=300,
        optim__learning_rate=5e-3,
        checkpoints__every=300,
    )
    train.run(config, tmp_path / "run", command=[])
    loss = outcomes.metrics(tmp_path / "run")[-1]["eval/validation/mlm_loss"]
    assert compute_entropy() == pytest.approx(0.268, abs=1e-3)
    assert -0.05 < loss - compute_entropy() < 0.03


def test_fast_config_trains_when_it_is_small(tmp_path, one_device):
    """Packed rows, LAMB, no pairs: with a model and text of seconds."""
    texts.config_file(tmp_path)
    tree = load_file(f"{texts.ROOT}/configs/fast.py:base")
    small = {
        "corpus.source": "files",
        "corpus.path": tmp_path / "corpus",
        "corpus.workers": 1,
        "corpus.validation_fraction": 0.2,
        "tokenizer.vocab_size": 120,
        "model.size": "tiny",
        "model.layers": 1,
        "model.dtype": "float32",
        "model.hidden": 64,
        "sequence_length": 64,
        "batch_size": 32,
        "steps": 12,
        "optim.warmup_steps": 2,
        "optim.learning_rate": 0.02,
        "checkpoints.every": 12,
        "evals.validation.every": 12,
        "logging.every": 1,
        "logging.trackers": "",
        "logging.samples": 0,
    }
    for knob, value in small.items():
        override(tree, knob, str(value))
    train.run(resolve_and_list_idle(tree)[0], tmp_path / "run", command=[])
    losses = outcomes.logged(tmp_path / "run", "loss")
    assert losses[-1] < losses[0] - 0.1
    assert outcomes.logged(tmp_path / "run", "examples_per_row")[0] > 1.1


def test_evaluation_of_nothing_is_never_the_best(base, tmp_path, monkeypatch, one_device):
    losses = iter((math.nan, 2.0, math.nan, 1.0, math.nan))
    monkeypatch.setattr(corpus.Evaluator, "__call__", lambda *_: {"mlm_loss": next(losses)})
    every = {"checkpoints__every": 1, "evals__validation__every": 1, "checkpoints__keep": 9}
    train.run(texts.configure(base, steps=5, **every), tmp_path, command=[])
    metas = {step: outcomes.state(tmp_path, step)[1] for step in range(1, 6)}
    assert [(meta["best"], meta["misses"]) for meta in metas.values()] == [
        (None, 0),
        (2.0, 0),
        (2.0, 1),
        (1.0, 0),
        (1.0, 1),
    ]
    ranked = [(step, loss) for step, loss in list_metrics(tmp_path) if loss is not None]
    assert ranked == [(4, 1.0), (2, 2.0)]
