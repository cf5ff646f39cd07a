"""A run that suites score."""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax.data import prepare
from bert_jax.interop import runs
from tests import toy
from tests.texts import configure


@pytest.fixture(scope="module")
def run(base) -> runs.TrainedModel:
    """A run as it is before its first update, with weights large enough to matter."""
    config = configure(base, model__init_stddev=0.2, sequence_length=32)
    found = prepare.prepare_corpus(config)
    params = toy.init(config, vocab=found.tokenizer.size)
    return runs.TrainedModel(Path("run"), config, found.tokenizer, found.folder, params, 0, {})
