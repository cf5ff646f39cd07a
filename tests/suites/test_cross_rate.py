"""Suite `cross_rate`: the same words are masked for every vocabulary, and scored as by a loop."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bert_jax import suites
from bert_jax.config import knobs
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites import texts
from bert_jax.suites.cross_rate import METRICS, RATES
from bert_jax.suites.token_scores import TokenScorer
from tests.suites.asking import ask, score
from tests.suites.masked import plainly_masked

pytestmark = pytest.mark.usefixtures("one_device")

WORDS = 12  # of a passage


@pytest.fixture
def read_rows(monkeypatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows that a model reads; each token costs a nat and is guessed first."""
    rows: list[tuple[np.ndarray, np.ndarray]] = []

    def score_rows(scorer, given, progress):
        rows.extend(given)
        ones = [np.ones(int(masked.sum())) for _, masked in given]
        return [(nats, nats > 0) for nats in ones]

    monkeypatch.setattr(TokenScorer, "score_masked", score_rows)
    return rows


def load(run: runs.TrainedModel, source: str) -> list[texts.Passage]:
    (asked,) = suites.build_options(["cross_rate"], source=source, words=WORDS)
    return texts.load_passages(run, asked)


def test_cross_rate_masks_the_same_words_in_any_model(models, source, read_rows):
    seen = {}
    written = Path(source.partition(":")[2], "text.txt").read_text().split("\n")
    of_bytes = train_vocabulary(written, knobs.Tokenizer(kind="bpe", vocab_size=290))
    some = models | {"bytes": dataclasses.replace(models["whole"], tokenizer=of_bytes)}
    for name, run in some.items():
        read_rows.clear()
        found = load(run, source) * len(RATES)
        ask(run, "cross_rate", source=source, words=WORDS)
        seen[name] = []
        for one, (ids, hidden) in zip(found, read_rows, strict=True):
            words = sorted(set(one.words[hidden].tolist()))
            assert hidden.tolist() == np.isin(one.words, words).tolist()  # all of its tokens
            shown = run.tokenizer.decode(ids[~hidden].tolist())
            text = " ".join(w for n, w in enumerate(one.text.split()) if n not in words)
            assert " ".join(shown.replace(" .", ".").split()) == text
            seen[name].append((one.text, words))
    assert seen["whole"] == seen["letters"] == seen["bytes"]


def test_cross_rate_of_a_source_equals_a_plain_loop(models, source):
    run = models["letters"]
    found = load(run, source)
    rows = [(one.ids, one.choose_masked(rate)[one.words]) for rate in RATES for one in found]
    plain = iter(plainly_masked(run, rows, 96))
    result, arrays = score(run, "cross_rate", source=source, words=WORDS)
    for rate in RATES:
        sums = []
        for one in found:
            nats, right = next(plain)
            chosen = one.choose_masked(rate)
            wrong = set(one.words[chosen[one.words]][~np.array(right)].tolist())
            letters = sum(len(one.text.split()[word]) for word in np.flatnonzero(chosen))
            sums.append((sum(nats), len(nats), chosen.sum(), letters, chosen.sum() - len(wrong)))
        nats, tokens, words, letters, hits = np.sum(sums, 0)
        expected = {
            "mlm_loss": nats / tokens,
            "nats_per_word": nats / words,
            "nats_per_character": nats / letters,
            "word_accuracy": hits / words,
            "mlm_predictions": tokens,
            "words": words,
            "characters": letters,
            "unknown_words": 0,
        }
        key, own = f"{rate:g}", np.array(sums)
        assert {name: result[key][name] for name in expected} == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(arrays[f"{key}/nats_per_word.sum"], own[:, 0], rtol=1e-5)
        np.testing.assert_array_equal(arrays[f"{key}/nats_per_character.count"], own[:, 3])
    names = {f"{r:g}/{m}.{part}" for r in RATES for m in METRICS for part in ("sum", "count")}
    assert arrays.keys() == {*names, EXAMPLES}
    asked = {"source": source, "words": WORDS, "limit": 2, "batch_size": 7}
    few = score(run, "cross_rate", **asked)[1]
    for name in names:
        np.testing.assert_allclose(few[name], arrays[name][:2], rtol=1e-5, err_msg=name)


def test_examples_of_two_vocabularies_are_paired(models, source, read_rows):
    """A study pairs examples whose digest and counts are equal."""
    for suite, prefix in (("cross_rate", "0.4/"), ("nelbo", "")):
        found = {}
        for name, limit in (("whole", 4), ("letters", 4), ("whole", 3)):
            asked = {"source": source, "words": WORDS, "limit": limit}
            found[name, limit] = score(models[name], suite, **asked)[1]
        whole, letters = found["whole", 4], found["letters", 4]
        assert whole[EXAMPLES].tobytes() == letters[EXAMPLES].tobytes()
        assert whole[EXAMPLES].tobytes() != found["whole", 3][EXAMPLES].tobytes()
        key = f"{prefix}nats_per_character"
        assert whole[f"{key}.count"].tolist() == letters[f"{key}.count"].tolist()
        assert whole[f"{key}.sum"].tolist() != letters[f"{key}.sum"].tolist()


def test_cross_rate_counts_unknown_words(models, tmp_path, read_rows):
    (tmp_path / "a.txt").write_text("the zebra sees the zebra in the garden\n")
    found = ask(models["whole"], "cross_rate", source=str(tmp_path))["0.8"]
    (passage,) = load(models["whole"], str(tmp_path))
    words = [passage.text.split()[at] for at in np.flatnonzero(passage.choose_masked(0.8))]
    assert (found["words"], found["unknown_words"]) == (6, words.count("zebra"))
    assert words.count("zebra") > 0
    assert np.isnan(found["nats_per_character_error"])  # of one document
