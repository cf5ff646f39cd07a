"""An audit counts what is there, and warns of what would spoil training."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import audit
from bert_jax.data.corpus import Split
from tests.data import small


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=40), st.integers(1, 17)
)
def test_tokens_of_repeated_sentences_are_counted(sentences, block):
    tokens = np.array([token for sentence in sentences for token in sentence], np.uint16)
    ends = np.cumsum([len(sentence) for sentence in sentences], dtype=np.int64)
    again = 0
    for number, sentence in enumerate(sentences):
        before = sentences[number - number % (3 * block) : number]
        again += len(sentence) * (sentence in before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "BLOCK", 3 * block)
        assert audit.count_repeated(Split(tokens, ends, ends)) == again


def test_tokens_are_counted_in_blocks(monkeypatch):
    monkeypatch.setattr(audit, "TOKENS", 3)
    tokens = np.array([0, 5, 5, 1, 5, 2, 2], np.uint16)
    ends = np.zeros(0, np.int64)
    counts = audit.count_tokens(Split(tokens, ends, ends), 7)
    assert counts.tolist() == [1, 1, 2, 0, 0, 3, 0]
    shares = counts[counts > 0] / 7
    assert audit.measure_entropy(counts) == pytest.approx(-(shares * np.log(shares)).sum())


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([["One.", "Two."]], "one training document"),
        ([["One."], ["Two."], ["Three."], ["Four."]], "100% of training documents have one"),
        (
            [[f"It is {n}.", "So it goes.", "So it goes.", "So it goes."] for n in range(9)],
            "sentences that came before",
        ),
    ],
)
def test_what_spoils_training_is_warned_of(tmp_path, documents, says):
    small.write_text(tmp_path / "in", documents)
    facts = json.loads((small.run(tmp_path).folder / "audit.json").read_text())
    (warning,) = [text for text in facts["warnings"] if says in text]
    assert f"warning: {warning}" in audit.format_audit(facts)
