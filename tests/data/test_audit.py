"""An audit counts what is there, and warns of what would spoil training."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import audit
from bert_jax.training import data
from tests.data import small


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=40))
def test_count_repeated_counts_tokens(sentences):
    tokens = np.array([token for sentence in sentences for token in sentence], np.uint32)
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    again = sum(len(one) for place, one in enumerate(sentences) if one in sentences[:place])
    assert audit.count_repeated(tokens, lengths) == again


def test_measure_entropy_is_that_of_the_shares():
    shares = np.array([1, 1, 2, 3]) / 7
    found = audit.measure_entropy(np.array([1, 1, 2, 0, 0, 3, 0]))
    assert found == pytest.approx(-(shares * np.log(shares)).sum())


def test_audit_speaks_in_the_first_process_alone(tmp_path, capsys, monkeypatch):
    """What it says at every start is in tests/net/transcripts/train.txt."""
    small.write_text(tmp_path / "in", [[f"So it goes {n}."] for n in range(30)])
    config = small.configure(tmp_path)
    data.load_training_data(config)
    assert "have one sentence" in capsys.readouterr().err
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    data.load_training_data(config)
    assert not capsys.readouterr().err
