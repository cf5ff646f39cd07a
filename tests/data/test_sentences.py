"""A line is cut into sentences that keep the blank before them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import sentences
from bert_jax.data.sentences import split_sentences


def test_sentences_of_prose_are_found():
    line = "Mr. Smith came, e.g. by train.  He left!"
    assert split_sentences(line, "en") == [" Mr. Smith came, e.g. by train.", " He left!"]
    assert split_sentences(line, None) == [" Mr. Smith came, e.g. by train. He left!"]
    assert split_sentences(" \t", "en") == split_sentences("", None) == []


@pytest.mark.fault(11)
@given(
    st.text("ab. 。é字\t\u2028\x85\x1c\r", max_size=60),
    st.integers(4, 20),
    st.sampled_from(["en", "zh", None]),
)
def test_sentences_make_up_the_line(line, longest, language):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "LONGEST", longest)
        found = split_sentences(line, language)
    assert "".join(found).lstrip(" ") == " ".join(line.split())
    assert all(len(sentence.lstrip(" ")) <= longest for sentence in found)
    assert all(sentence.strip(" ") for sentence in found)


def test_a_sentence_without_an_end_is_cut_at_a_space():
    long = "word " * 10_000
    found = split_sentences(long, "en")
    assert len(found) > 1
    assert all(sentence.startswith(" word") for sentence in found)
    assert "".join(found).split() == long.split()
