"""Encoders that no Hugging Face folder can hold compute what the float64 statement says."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from tests.marks import mark_slow
from tests.net import variants
from tests.net.rows import TOLERANCE
from tests.net.train_rows import print_here

TEXTS = (  # of words that are tokens
    "the cat sees [MASK] small dog .",
    "the young baker follows the last train near the sea by night . a river hears the cat .",
)
QUICK = ("gpt_bert",)  # with its own kind of positions
TRAIN = {
    "init_from": "",
    "model.init_stddev": 0.2,
    "pairs": "none",
    "steps": 1,
    "batch_size": 8,
    "sequence_length": 24,
    "optim.warmup_steps": 0,
    "checkpoints.every": 1,
    "evals.validation.every": 1,
    "corpus.cache": "cache",
}


@pytest.mark.parametrize("name", mark_slow(variants.VARIANTS, QUICK))
def test_a_variant_is_the_float64_statement(folder, name, one_device):
    knobs = variants.VARIANTS[name]
    changes = TRAIN | {f"model.{knob}": value for knob, value in knobs.items()}
    words = ["train", "--config=base.py", f"--workdir=runs/{name}"]
    words += [f"--config.{knob}={value}" for knob, value in changes.items()]
    with contextlib.chdir(folder):
        print_here(words)
        model = bert_jax.load(f"runs/{name}")
        params = variants.read_parameters(Path("runs", name))
        lines = Path("models/bert/vocab.txt").read_text().splitlines()
        ids = {piece: number for number, piece in enumerate(lines)}
        states, logits = model.hidden_states(TEXTS), model.logits(TEXTS)
    for text, state, logit in zip(TEXTS, states, logits, strict=True):
        pieces = ["[CLS]", *text.split(), "[SEP]"]
        tokens = np.array([ids[piece] for piece in pieces])
        expected, scores = variants.compute(params, tokens, knobs)
        np.testing.assert_allclose(state, expected, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(logit, scores[:, : len(lines)], rtol=TOLERANCE, atol=TOLERANCE)
