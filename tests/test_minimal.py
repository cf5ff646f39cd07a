"""The tour's one-file training: its loss is the package's, and it falls below a guess."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from bert_jax.data import pipeline, prepare
from bert_jax.objectives import TABLE, network
from bert_jax.training.step import compute_inputs
from tests import texts

FOLDER = texts.ROOT / "experiments" / "tour"


@pytest.fixture
def minimal(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import minimal

    return minimal


def test_loss_and_gradient_are_the_package_s(minimal):
    config = minimal.make_config()
    corpus = prepare.prepare_corpus(config, log=lambda line: None)
    tokenizer = corpus.tokenizer
    raw = pipeline.Source(corpus, "train", config).batch(0)
    batch, _ = minimal.make_mask(config, tokenizer)(raw, compute_inputs(config, 0))
    params = minimal.init_params(config, tokenizer.size, batch)
    model = network.build(config, tokenizer.size)

    def compute_loss(params):
        outputs = network.outputs(model, params, batch)
        total, count = TABLE["mlm"].loss(outputs["mlm"], batch)["mlm_loss"]
        return total / count

    ours = jax.jit(
        jax.value_and_grad(lambda p: minimal.compute_loss(p, config, tokenizer.size, batch))
    )
    loss, gradient = ours(params)
    theirs = {"encoder": params["encoder"], "mlm": params["head"]}
    expected, wanted = jax.jit(jax.value_and_grad(compute_loss))(theirs)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    wanted = {"encoder": wanted["encoder"], "head": wanted["mlm"]}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient, wanted
    )


def test_loss_falls_below_a_guess_by_frequency(minimal, capsys):
    losses = minimal.main(60)
    assert len(losses) == 60
    unigram = float(capsys.readouterr().out.split("costs ")[1].split()[0])
    assert np.mean(losses[-10:]) < unigram < losses[0]
