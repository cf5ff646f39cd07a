"""Models that suites score."""

from pathlib import Path

import pytest

from bert_jax.data import prepare
from bert_jax.interop import runs
from tests import texts, tiny
from tests.suites.masked import make_model


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> runs.TrainedModel:
    """A run as it is before its first update, with weights large enough to matter."""
    base = texts.config_file(tmp_path_factory.mktemp("text"))
    config = texts.configure(base, model__init_stddev=0.2, sequence_length=32)
    found = prepare.prepare_corpus(config)
    params = tiny.init(config, vocab=found.tokenizer.size)
    return runs.TrainedModel(Path("run"), config, found.tokenizer, found.folder, params, 0, {})


@pytest.fixture
def masked() -> runs.TrainedModel:
    """A masked model of 16 positions that somebody else trained."""
    return make_model()


@pytest.fixture
def models() -> dict[str, runs.TrainedModel]:
    """Two vocabularies: every word of the texts as one piece, and only letters."""
    phrases = " ".join([*texts.SUBJECTS, *texts.VERBS, *texts.PLACES])
    words, letters = sorted({*phrases.split()}), sorted({*phrases} - {" "})
    pieces = {"whole": words, "letters": [*letters, *(f"##{letter}" for letter in letters)]}
    return {name: make_model((*some, "."), longest=96) for name, some in pieces.items()}


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> str:
    """A few documents of a few sentences."""
    return f"files:{texts.write(tmp_path_factory.mktemp('source'), documents=3)}"
