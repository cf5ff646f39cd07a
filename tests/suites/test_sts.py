"""Suite `sts`: correlations of cosines, against scipy's over vectors of `predict embed`."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from bert_jax.api import Model
from tests.suites.asking import WORDS, ask


@pytest.mark.parametrize("causal", [False, True])
def test_sts_is_the_correlation_of_cosines(run, tmp_path, one_device, causal):
    model = dataclasses.replace(run.config.model, causal=causal)
    run = run.replace_sections(model=model)
    random = np.random.default_rng(3)
    gold = random.normal(size=15).round(2)
    pairs = [(" ".join(random.choice(WORDS, 2)), str(random.choice(WORDS))) for _ in gold]
    rows = [f"{a}\t{b}\t{value}\n" for (a, b), value in zip(pairs, gold, strict=True)]
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(["sentence1\tsentence2\tscore\n", *rows]))
    told = dataclasses.replace(run, meta={"sentence": {"pooling": "cls", "normalize": True}})
    found = ask(told, "sts", source=f"files:{file}", batch_size=7)
    last = [x[-1, -1 if causal else 0] for x in Model(run).hidden_states(WORDS)]
    np.testing.assert_allclose(Model(run).embed(WORDS, pooling="cls"), last, atol=1e-5)
    for pooling in ("mean", "cls"):
        a, b = (Model(run).embed(texts, pooling=pooling) for texts in zip(*pairs, strict=True))
        norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
        cosines = ((a * b).sum(-1) / norms).round(6)  # equal texts are a tie
        spearman = scipy.stats.spearmanr(cosines, gold).statistic
        assert found[pooling]["spearman"] == pytest.approx(spearman)
        # Cosines of a model that knows nothing differ in their last digits.
        pearson = scipy.stats.pearsonr(cosines, gold).statistic
        assert found[pooling]["pearson"] == pytest.approx(pearson, rel=1e-3)
    assert found["own"] == found["cls"] != found["mean"]
    assert found["pairs"] == 15
