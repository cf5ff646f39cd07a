"""Task `embed`: vectors of real tokens, against an encoder without padding."""

import jax
import numpy as np
import pytest

from bert_jax.api import Model
from bert_jax.interop import runs
from bert_jax.objectives import network
from tests import variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"


def encode_alone(run: runs.TrainedModel, text: str) -> np.ndarray:
    """The last hidden states [L, D] of one text, without padding."""
    special = run.tokenizer.special
    ids = [special.cls, *run.tokenizer.encode_batch([text])[0], special.sep]
    batch = {
        "tokens": np.array([ids], np.int32),
        "type_ids": np.zeros((1, len(ids)), np.int32),
        "segment_ids": np.ones((1, len(ids)), np.int32),
        "positions": np.arange(len(ids), dtype=np.int32)[None],
    }
    encoder = network.Encoder(run.config.model, run.tokenizer.size, pool=False)
    hidden = jax.jit(encoder.apply)({"params": run.params["encoder"]}, batch).hidden
    return np.asarray(hidden[0], np.float64)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", False), ("cls", True)])
def test_embed_pools_nothing_but_real_tokens(pooling, normalize):
    run = runs.open_run(str(MODEL))
    lines = ["the big red dog ran to the mat and sat on it.", "[MASK]"]
    found = Model(run).embed(lines, pooling=pooling, normalize=normalize)
    for line, vector in zip(lines, found, strict=True):
        hidden = encode_alone(run, line)
        expected = hidden.mean(0) if pooling == "mean" else hidden[0]
        expected /= np.linalg.norm(expected) if normalize else 1
        np.testing.assert_allclose(vector, expected, atol=1e-5)
