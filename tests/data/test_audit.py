"""An audit counts what is there, and warns of what would spoil training."""

import dataclasses
import json

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


@pytest.mark.fault(11)
@pytest.mark.parametrize("pairs", ["nsp", "none"])
def test_every_start_warns_of_problems(tmp_path, pairs, capsys, monkeypatch):
    """Also of lone surrogates. Other warnings are in tests/net/transcripts/prepare.txt."""
    texts = [f"It is {n}.\nSo it goes.\nSo it goes." for n in range(9)]
    texts += [f"\ud800 {n}." for n in range(9)]
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    small.write(tmp_path / "in" / "a.jsonl", rows)
    config = dataclasses.replace(small.configure(tmp_path, sentences="auto"), pairs=pairs)
    for _ in range(2):
        data.load_training_data(config)
        warnings = capsys.readouterr().err
        assert warnings.count("sentences that came before") == 1
        assert warnings.count("9 lines with bytes that are no text") == 1
        assert warnings.count("have one sentence") == (pairs == "nsp")
    (facts,) = tmp_path.rglob("audit.json")  # which doctor reads, of no config
    assert "NSP" not in facts.read_text()
    monkeypatch.setattr(jax, "process_index", lambda: 1)  # one of several processes speaks
    data.load_training_data(config)
    assert not capsys.readouterr().err
