"""Suite `pretrain`, the validation split as training scores it, and what shares its corpus."""

import dataclasses

import numpy as np
import pytest

from bert_jax import suites
from bert_jax.evaluation import corpus
from bert_jax.suites import cross_rate, nsp
from tests import texts
from tests.suites.asking import ask, score

NAMES = [f"{objective}_{part}" for objective in ("mlm", "nsp") for part in ("loss", "accuracy")]


@pytest.fixture(scope="module")
def usual(run) -> suites.Detailed:
    """What training would report of it, and that by example."""
    return score(run, "pretrain")


def test_pretrain_by_example_adds_up(usual):
    found, arrays = usual
    which = {f"{name}.{part}" for name in NAMES for part in ("sum", "count")}
    assert arrays.keys() == {*which, "examples"}
    for name in NAMES:
        total, count = arrays[f"{name}.sum"], arrays[f"{name}.count"]
        assert total.shape == count.shape == (found["examples"],)
        assert total.sum() / count.sum() == pytest.approx(found[name], rel=1e-6)
    assert arrays["mlm_loss.count"].sum() == found["mlm_predictions"]


@pytest.mark.parametrize(
    ("masking", "rows"),
    [({}, 13), ({"rate": 0.4}, 1), ({"replace": (1.0, 0.0, 0.0), "unit": "word"}, 0)],
)
def test_pretrain_depends_on_the_weights_alone(run, usual, one_device, masking, rows):
    """On eight devices and on one, in any batch, and however the run masked in training."""
    masking = dataclasses.replace(run.config.masking, **masking)
    found, arrays = score(run.replace_sections(masking=masking), "pretrain", batch_size=rows)
    assert found == pytest.approx(usual[0], rel=1e-6)
    assert arrays["examples"].tobytes() == usual[1]["examples"].tobytes()
    for name, values in arrays.items():
        np.testing.assert_allclose(values, usual[1][name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_pretrain_takes_changes_of_its_own_config(run, usual, one_device, monkeypatch):
    """What identifies its examples has all tokens of each of them."""
    monkeypatch.setattr(corpus, "digest", lambda parts: np.array(sum(map(len, parts))))
    found, arrays = score(run, "pretrain", changes=(("evals.validation.rate", "0.4"),))
    assert found["mlm_predictions"] > 2 * usual[0]["mlm_predictions"]
    assert arrays["examples"] > 8 * 32 * found["examples"]  # bytes of 32 tokens a row


def test_cross_rate_at_15_percent_is_pretrain(run, usual, monkeypatch):
    compiled = []
    make = corpus.Evaluator.__init__

    def remember(self, *given):
        make(self, *given)
        compiled.append(self.step)

    monkeypatch.setattr(corpus.Evaluator, "__init__", remember)
    with texts.one_device():
        found = ask(run, "cross_rate", batch_size=7)
    assert list(found) == [f"{rate:g}" for rate in cross_rate.RATES]
    assert found["0.15"] == pytest.approx({key: usual[0][key] for key in found["0.15"]}, rel=1e-6)
    counts = [one["mlm_predictions"] for one in found.values()]
    assert counts == sorted(set(counts))
    assert [step._cache_size() for step in compiled] == [1]  # one program for all rates


def test_nsp_of_a_corpus_is_part_of_pretrain(run, usual, one_device):
    found = ask(run, "nsp")
    assert found.keys() > {f"nsp_{name}" for name in nsp.METRICS}
    assert found == pytest.approx({key: usual[0][key] for key in found}, rel=1e-6)
