"""Word by word gives the ids of whole sentences, for every kind of vocabulary."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data import encode, engines
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.engines import build_wordpiece
from tests import EXAMPLES, reactions
from tests.data.small import BPE, WORDS

SENTENCES = st.lists(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(WORDS), max_size=8)
)
BUILDERS = {
    "uncased": lambda pieces: tokenizers.Tokenizer(build_wordpiece(pieces)),
    "cased": lambda pieces: tokenizers.Tokenizer(build_wordpiece(pieces, lowercase=False)),
    "reactions": reactions.build_tokenizer,
    "roberta": lambda _: tokenizers.load_tokenizer(BPE / "roberta"),
    "modernbert": lambda _: tokenizers.load_tokenizer(BPE / "modernbert"),
}


def encode_each(words: encode.Words, sentences: list[str]) -> list[list[int]]:
    """The ids of each sentence, every second the beginning of a document."""
    starts = np.arange(len(sentences)) % 2 == 0
    ids, sizes = words.encode([f" {text}" for text in sentences], starts)
    return [part.tolist() for part in np.split(ids, np.cumsum(sizes)[:-1])] if sentences else []


@given(SENTENCES, st.sampled_from([*BUILDERS]))
@settings(max_examples=EXAMPLES or 200)
def test_word_by_word_gives_the_ids_of_sentences(found, name):
    sentences = [" ".join(" ".join(words).split()) for words in found]
    pieces = [*engines.SPECIALS, *WORDS, *(f"##{w}" for w in WORDS), *"aeé字.[]"]
    tokenizer = BUILDERS[name](pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "WORDS", 5)
        patch.setattr(encode, "BLOCK", 2)
        words = encode.Words(tokenizer)
        spaced = [f" {text}" if i % 2 else text for i, text in enumerate(sentences)]
        for _ in range(2):
            assert encode_each(words, sentences) == tokenizer.encode_batch(spaced)
