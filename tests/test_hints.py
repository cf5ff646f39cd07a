"""Hints that help: what a user most likely meant, in a form that can be copied."""

from __future__ import annotations

import types

import pytest

from bert_jax.data import tfds
from bert_jax.errors import MissingError


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """A folder of texts is here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()


@pytest.mark.parametrize(
    ("there", "said", "hint"),
    [
        (False, "wiki is not prepared: there is no folder ", "where there is a network: python -c"),
        (
            True,
            "it is prepared as TFRecord, which TensorFlow alone reads",
            "file_format='array_record'",
        ),
    ],
)
def test_a_dataset_that_is_not_there_or_of_another_format(there, said, hint, tmp_path, monkeypatch):
    def refuse(split: str) -> None:
        text = (
            "Random access data source for file format FileFormat.TFRECORD is not supported. "
            "Possible root causes:\n"
        )
        raise NotImplementedError(text)

    place = tmp_path / ("texts" if there else "nowhere")
    made = types.SimpleNamespace(data_dir=str(place), as_data_source=refuse)
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: made)
    with pytest.raises(Exception, match=said) as caught:
        tfds.examples_of.__wrapped__("wiki", "", "train")
    assert hint in caught.value.hint
    assert isinstance(caught.value, MissingError) != there
