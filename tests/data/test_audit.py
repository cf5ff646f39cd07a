"""An audit counts what is there, and warns of what would spoil training."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import audit
from tests.data import small


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=40))
def test_count_repeated_counts_tokens(sentences):
    tokens = np.array([token for sentence in sentences for token in sentence], np.uint32)
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    places = enumerate(sentences)
    again = sum(len(sentence) for number, sentence in places if sentence in sentences[:number])
    assert audit.count_repeated(tokens, lengths) == again


def test_measure_entropy_is_that_of_the_shares():
    shares = np.array([1, 1, 2, 3]) / 7
    found = audit.measure_entropy(np.array([1, 1, 2, 0, 0, 3, 0]))
    assert found == pytest.approx(-(shares * np.log(shares)).sum())


def test_repeated_sentences_are_warned_of(tmp_path):
    """Other warnings are in tests/net/transcripts/prepare.txt."""
    again = ["So it goes."] * 3
    small.write_text(tmp_path / "in", [[f"It is {n}.", *again] for n in range(9)])
    facts = json.loads((small.run(tmp_path).folder / "audit.json").read_text())
    (warning,) = [text for text in facts["warnings"] if "sentences that came before" in text]
    assert f"warning: {warning}" in audit.format_audit(facts)
