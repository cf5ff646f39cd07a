"""More predictions than corruptions: an example in several views, each with other tokens masked."""

from __future__ import annotations

import numpy as np
import pytest

from bert_jax.batch import HOST_KEYS
from bert_jax.config.knobs import Masking
from bert_jax.data import pipeline
from bert_jax.errors import DivergedError
from bert_jax.training.ledger import Ledger
from tests import corpora, toy
from tests.masking.by_hand import repeat_views

MORE = {"masking__rate": 0.15, "masking__prediction_rate": 0.4}


def test_ledger_stops_views_that_repeat():
    settings = Masking(rate=0.2, prediction_rate=0.4)
    b = repeat_views(toy.batch(16, 24), 2)
    b["views"][:4] = 0
    with pytest.raises(DivergedError, match=r"tokens selected in all views sum to"):
        Ledger(settings).add(toy.mask(b, settings)[1], 0.2, 32, 1)


@pytest.mark.parametrize(
    "kind", [{}, {"packing": 3}, {"masking__dupe_factor": 2}, {"pairs": "nsp"}], ids=str
)
def test_batch_holds_all_views_of_its_examples(kind, tmp_path):
    """Each row of a run without views comes three times, over the ends of epochs too."""
    documents = corpora.random_documents(60, seed=0)
    prepared = corpora.prepared(tmp_path, [corpora.shard(documents, toy.VOCAB)])
    shape = {"sequence_length": 32, "pairs": "none"} | kind
    several = pipeline.Source(prepared, "train", toy.config(batch_size=12, **shape, **MORE))
    plain = pipeline.Source(prepared, "train", toy.config(batch_size=4, **shape))
    last = -(-2 * several.examples_per_epoch // 4)
    for step in (0, last // 2, last):
        ours, theirs = several.batch(step), plain.batch(step)
        assert set(ours) == {*HOST_KEYS, "views"}
        for key, value in theirs.items():
            np.testing.assert_array_equal(ours[key], np.repeat(value, 3, axis=0), err_msg=key)
        np.testing.assert_array_equal(ours["views"][:, 0], np.tile([0, 1, 2], 4))
        part = several.batch(step, slice(5, 9))  # of a process, which need not begin with a view 0
        for key, value in part.items():
            np.testing.assert_array_equal(value, ours[key][5:9], err_msg=key)
    assert several.fingerprint != plain.fingerprint
