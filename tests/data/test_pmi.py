"""Collocations against the definition written out, and their list on disk.

That units take the longest from left to right is frozen by tests/net/test_batches.py.
"""

import collections
import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import ngrams, pmi
from bert_jax.data.corpus import Prepared, Split
from bert_jax.data.pipeline import TextStream
from tests import EXAMPLES, corpora

# Pieces of words: 8 and 9 go on with a word, 1 is [UNK].
WORDS = [*((5,), (6,), (7, 8), (7, 9)), *((10, 9, 8), (11,), (12,), (1,))]
Gram = tuple[tuple[int, ...], ...]


def make_corpus(folder: Path, seed: int) -> tuple[Prepared, list[Gram]]:
    """Return a corpus, and its documents as words; three words come one after the other."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(len(WORDS)))
    documents: list[Gram] = []
    for size in random.integers(1, 40, 15):
        words = [WORDS[i] for i in random.choice(len(WORDS), size, p=weights)]
        at = int(random.integers(size))
        planted = [(5,), (7, 8), (12,)] * int(random.integers(3))
        documents.append((*words[:at], *planted, *words[at:]))
    pieces = [[piece for word in document for piece in word] for document in documents]
    ends = np.cumsum([len(part) for part in pieces])
    tokens = np.array([*itertools.chain(*pieces)], np.uint32)
    prepared = corpora.prepared(folder, Split(tokens, ends, np.arange(1, len(ends) + 1)))
    prepared.tokenizer.continuation = np.isin(np.arange(20), (8, 9))
    return prepared, documents


def counted(documents: list[Gram], most: int) -> dict[int, collections.Counter]:
    found: dict[int, collections.Counter] = {n: collections.Counter() for n in range(1, most + 1)}
    for document in documents:
        for n in found:
            for i in range(len(document) - n + 1):
                gram = document[i : i + n]
                if n == 1 or (1,) not in gram:  # no unknown word in a longer one
                    found[n][gram] += 1
    return found


def score(gram: Gram, counts: dict[int, collections.Counter]) -> float:
    """PMI: the least, over every way to cut, of log p(gram) / prod p(part)."""

    def log_p(part: Gram) -> float:
        return math.log(counts[len(part)][part] / counts[len(part)].total())

    values = []
    for cuts in itertools.product([False, True], repeat=len(gram) - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(gram)]
        if len(bounds) > 2:
            values.append(
                log_p(gram) - sum(log_p(gram[a:b]) for a, b in itertools.pairwise(bounds))
            )
    return min(values)


def hash_gram(gram: Gram) -> int:
    """Return the hash by which an n-gram is known."""
    pieces = np.array([piece for word in gram for piece in word])
    begins = np.cumsum([0, *map(len, gram[:-1])])
    words = ngrams.word_hashes(pieces, begins)
    *_, (_, hashes, _) = ngrams.hash_ngrams(words, np.zeros(len(words)), len(gram))
    return int(hashes[0])


def choose(documents: list[Gram], counts: dict, most: int, often: int, share: float) -> set[int]:
    """Half of the list are pairs, a quarter triples and so on; the shortest that covers a share."""
    keys: dict[Gram, float] = {}  # the length of the shortest list that has the n-gram
    for n in range(2, most + 1):
        scores = {g: round(score(g, counts), 9) for g, count in counts[n].items() if count > often}
        found = [gram for gram in scores if scores[gram] > 0]
        best = sorted(found, key=lambda gram: (-scores[gram], hash_gram(gram)))
        keys |= {g: rank * 2 ** min(n - 1, most - 2) for rank, g in enumerate(best, 1)}
    words = []
    for document in documents:
        for at in range(len(document)):
            spans = [(i, n) for n in range(2, most + 1) for i in range(max(0, at - n + 1), at + 1)]
            around = [document[i : i + n] for i, n in spans if i + n <= len(document)]
            words.append(min((keys.get(gram, math.inf) for gram in around), default=math.inf))
    limit = sorted(words)[math.ceil(share * len(words)) - 1]
    return {hash_gram(gram) for gram, key in keys.items() if key <= limit}


def search(prepared: Prepared, masking: knobs.Masking) -> set[int]:
    return {*pmi.Search(prepared, masking).run().sorted.tolist()}


@settings(max_examples=EXAMPLES or 8)
@given(seed=st.integers(0, 10_000), most=st.integers(2, 5), often=st.integers(0, 3))
def test_search_finds_what_the_definition_says(tmp_path_factory, seed, most, often):
    prepared, documents = make_corpus(tmp_path_factory.mktemp("corpus"), seed)
    counts = counted(documents, most)
    masking = knobs.Masking(pmi_words=most, pmi_coverage=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pmi, "OFTEN", often)
        for share in (0.1, 0.4, 1.0):
            part = dataclasses.replace(masking, pmi_coverage=share)
            assert search(prepared, part) == choose(documents, counts, most, often, share)
        patch.setattr(pmi, "HELD", 50)  # passes and blocks change nothing
        patch.setattr(pmi, "BLOCK", 30)
        assert search(prepared, masking) == choose(documents, counts, most, often, 1.0)
        patch.setattr(pmi, "SEARCHED", 100)  # tokens of documents that are drawn
        part = dataclasses.replace(masking, pmi_coverage=0.2)
        whole = search(prepared, part)
        patch.setattr(pmi, "SAMPLE", 100)
        assert search(prepared, part) == whole  # the share is measured on all of them


def open_source(prepared: Prepared, **changes: object) -> TextStream:
    usual = {"sequence_length": 32, "batch_size": 8}
    return TextStream(prepared, "train", corpora.config(masking__unit="pmi", **usual | changes))


def test_collocations_are_found_once_for_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(pmi, "OFTEN", 1)
    prepared, _ = make_corpus(tmp_path, 3)
    first = open_source(prepared)
    (file,) = (tmp_path / "collocations").glob("*.npz")
    with monkeypatch.context() as patch:
        patch.setattr(pmi, "Search", None)
        again = open_source(prepared)  # from the file
    assert again.fingerprint == first.fingerprint
    assert corpora.same(again.batch(3), first.batch(3))
    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    for damaged in (bytes(body), b""):
        file.write_bytes(damaged)
        assert open_source(prepared).fingerprint == first.fingerprint  # made anew
    assert open_source(prepared, masking__pmi_words=2).fingerprint != first.fingerprint
    assert len(list((tmp_path / "collocations").glob("*.npz"))) == 2


def test_collocations_need_no_folder_to_write_in(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pmi, "OFTEN", 1)
    prepared, _ = make_corpus(tmp_path, 3)
    (tmp_path / "collocations").write_text("in the way")
    units_of_row = open_source(prepared).batch(0)["unit_ids"][0]
    assert "the list is not kept" in capsys.readouterr().err
    assert np.unique(units_of_row[units_of_row >= 0], return_counts=True)[1].max() > 2
