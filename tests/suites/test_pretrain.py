"""Suite `pretrain`, the validation split as training scores it, and what shares its corpus."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax import sharding, suites
from bert_jax.errors import ConfigError
from bert_jax.evaluation import corpus
from bert_jax.interop import runs
from bert_jax.suites.cross_rate import RATES
from tests import texts
from tests.suites.asking import ask
from tests.texts import configure


@pytest.fixture(scope="module")
def usual(run) -> dict:
    """What training would report of it."""
    return suites.evaluate(run, "pretrain")


def score_examples(run: runs.TrainedModel, **asked: object) -> suites.Detailed:
    (options,) = suites.build(["pretrain"], **asked)
    return suites.score(run, options)


def test_pretrain_by_example_adds_up(run, usual, monkeypatch):
    """They add up to the totals, are what a row finds alone, the same at any batch size and on any
    devices.
    """
    made = []
    make = corpus.Evaluator.__init__

    def remember(self, *given):
        make(self, *given)
        made.append(self)

    monkeypatch.setattr(corpus.Evaluator, "__init__", remember)
    found, arrays = score_examples(run)
    assert found == pytest.approx(usual, rel=1e-6)
    which = arrays.pop("examples").tobytes()
    names = [
        f"{objective}_{metric}" for objective in ("mlm", "nsp") for metric in ("loss", "accuracy")
    ]
    assert set(arrays) == {f"{name}.{part}" for name in names for part in ("sum", "count")}
    assert {(values.dtype, values.shape) for values in arrays.values()} == {
        (np.dtype(float), (usual["examples"],))
    }
    for name in names:
        assert arrays[f"{name}.sum"].sum() / arrays[f"{name}.count"].sum() == pytest.approx(
            usual[name], rel=1e-6
        )
    assert arrays["mlm_loss.count"].sum() == usual["mlm_predictions"]
    assert made[0].step._cache_size() == 1

    with texts.one_device():
        alone = score_examples(run, batch_size=13)[1]
        assert (made[0].rows, made[1].rows) == (64, 13)
        assert alone["examples"].tobytes() == which
        for name, values in arrays.items():
            np.testing.assert_allclose(alone[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
        assert ask(run, "pretrain", batch_size=1) == pytest.approx(usual, rel=1e-6)
    one = made[2].mesh
    params = jax.device_put(run.params, sharding.replicated(one))
    for number in (0, 5, usual["examples"] - 1):
        row = sharding.place(made[2].source.evaluation_batch(number, 1), 1, one)
        metrics = sharding.to_host(made[2].step(params, row, made[2].traced))
        for name in names:
            mine = [arrays[f"{name}.{part}"][number] for part in ("sum", "count")]
            assert mine == pytest.approx(
                [float(x[0]) for x in metrics[name]], rel=1e-5, abs=1e-6
            ), (
                number,
                name,
            )


@pytest.mark.fault(21)
@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("batch_size", "only training reads it", "--batch-size=8 sets the rows of a step"),
        ("parallel.data", "only training reads it", "leave it out: it reads corpus"),
        ("steps", "only training reads it", "leave it out: it reads corpus"),
    ],
)
def test_pretrain_refuses_knobs_of_training(run, path, said, hint):
    with pytest.raises(ConfigError) as refused:
        ask(run, "pretrain", changes=((path, "2"),))
    assert str(refused.value) == f"config.{path} does nothing in an evaluation: {said}"
    assert refused.value.hint.startswith(hint)


def test_cross_rate_at_15_percent_is_pretrain(run, usual, monkeypatch):
    compiled = []
    make = corpus.Evaluator.__init__

    def remember(self, *given):
        make(self, *given)
        compiled.append(self.step)

    monkeypatch.setattr(corpus.Evaluator, "__init__", remember)
    found = ask(run, "cross_rate", batch_size=7)
    assert list(found) == [f"{rate:g}" for rate in RATES]
    assert found["0.15"] == pytest.approx({key: usual[key] for key in found["0.15"]}, rel=1e-6)
    counts = [one["mlm_predictions"] for one in found.values()]
    assert counts == sorted(set(counts))
    assert [step._cache_size() for step in compiled] == [1]  # one program for all rates


def test_nsp_of_a_corpus_is_part_of_pretrain(run, usual, one_device):
    found = ask(run, "nsp")
    assert "nsp_accuracy_low" in found
    assert found == pytest.approx({key: usual[key] for key in found}, rel=1e-6)


def test_nsp_needs_a_corpus_with_pairs(run, base):
    alone = dataclasses.replace(run, config=dataclasses.replace(run.config, pairs="none"))
    with pytest.raises(ConfigError, match="pairs = 'none' has no next sentences"):
        ask(alone, "nsp", config=configure(base, pairs="none"))
