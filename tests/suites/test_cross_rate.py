"""Suite `cross_rate`: the same words are masked for every vocabulary, and scored as by a loop."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.suites import cross_rate, token_scores
from tests.suites.asking import ask, load_passages, score

pytestmark = pytest.mark.usefixtures("one_device")

WORDS = 12  # of a passage


def price(ids: np.ndarray) -> np.ndarray:
    """Nats of tokens, by their ids."""
    return 1.0 + ids % 5


@pytest.fixture
def read_rows(monkeypatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows that a model reads; ids decide what a token costs and whether it is guessed."""
    rows: list[tuple[np.ndarray, np.ndarray]] = []

    def score_rows(scorer, given, progress):
        rows.extend(given)
        return [(price(ids[masked]), ids[masked] % 8 > 0) for ids, masked in given]

    monkeypatch.setattr(token_scores.TokenScorer, "score_masked", score_rows)
    return rows


def test_cross_rate_masks_the_same_words_in_any_model(models, source, read_rows):
    seen = {}
    written = Path(source.partition(":")[2], "text.txt").read_text().split("\n")
    of_bytes = train_vocabulary(written, knobs.Tokenizer(kind="bpe", vocab_size=290))
    some = models | {"bytes": dataclasses.replace(models["whole"], tokenizer=of_bytes)}
    for name, run in some.items():
        read_rows.clear()
        found = load_passages(run, source, words=WORDS) * len(cross_rate.RATES)
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


def test_cross_rate_counts_words_and_characters(models, source, read_rows):
    run = models["letters"]
    result, arrays = score(run, "cross_rate", source=source, words=WORDS)
    for rate in cross_rate.RATES:
        rows = []
        for one in load_passages(run, source, words=WORDS):
            chosen = np.flatnonzero(one.choose_masked(rate))
            pieces = [one.ids[one.words == word] for word in chosen]
            letters = sum(len(one.text.split()[word]) for word in chosen)
            guessed = sum(bool((ids % 8 > 0).all()) for ids in pieces)
            nats, tokens = price(np.concatenate(pieces)).sum(), sum(map(len, pieces))
            rows.append((nats, tokens, len(pieces), letters, guessed))
        nats, tokens, words, letters, guessed = np.transpose(rows)
        measures = {"mlm_loss": (nats, tokens), "nats_per_word": (nats, words)}
        measures |= {"nats_per_character": (nats, letters), "word_accuracy": (guessed, words)}
        for name, wanted in measures.items():
            found = [arrays[f"{rate:g}/{name}.{part}"] for part in ("sum", "count")]
            np.testing.assert_array_equal(found, wanted)
            assert result[f"{rate:g}"][name] == pytest.approx(np.divide(*np.sum(wanted, 1)))
    assert 0 < guessed.sum() < words.sum()


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
    (passage,) = load_passages(models["whole"], tmp_path)
    words = [passage.text.split()[at] for at in np.flatnonzero(passage.choose_masked(0.8))]
    assert (found["words"], found["unknown_words"]) == (6, words.count("zebra"))
    assert words.count("zebra") > 0
    assert np.isnan(found["nats_per_character_error"])  # of one document
