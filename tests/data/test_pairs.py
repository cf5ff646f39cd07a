"""Full sentences fill their rows; test_fidelity.py compares pairs with the original's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import pairs
from tests import corpora

DOCUMENTS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=12)


@given(documents=DOCUMENTS, length=st.integers(8, 30))
def test_plan_full_sentences_fill_their_rows(documents, length):
    document = np.repeat(np.arange(len(documents)), [sum(d) for d in documents])  # of each token
    lengths = [n for document in documents for n in document]
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    found = pairs.plan_split(corpora.make_split(documents), "none", knobs.Examples(), length, 3, 0)
    assert (found["label"] == -1).all()
    room, at = length - 2, 0
    columns = ["a_start", "a_length", "document", "breaks"]
    for start, tokens, first, breaks in found[columns].tolist():
        assert start == at  # contiguous: every token once
        at = start + tokens
        assert 1 <= tokens <= room - breaks
        assert document[start] == first
        assert document[at - 1] == first + breaks
        if at == len(document):
            continue
        if sentence[at] == sentence[at - 1]:  # a cut sentence had the row to itself, up to its end
            assert tokens == room
        else:  # the next sentence, or what a row can hold of it, would not have fitted
            following = min((sentence == sentence[at]).sum(), room)
            assert tokens + breaks + (document[at] != document[at - 1]) + following > room
    assert at == len(document)
