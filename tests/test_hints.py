"""Hints that help: what a user most likely meant, in a form that can be copied."""

from __future__ import annotations

import types

import pytest

from bert_jax import predict
from bert_jax.data import tfds
from bert_jax.errors import MissingError
from bert_jax.interop import runs
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.options import Options
from tests import variants

GOLDEN = variants.GOLDEN / "huggingface" / "pretraining"


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


# --- predict --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden() -> runs.TrainedModel:
    return runs.open_run(str(GOLDEN))


@pytest.mark.parametrize(
    ("lines", "remark"),
    [
        (["the [MASK] sat"], None),
        (["the [MASK] sat", "a cat"], "1 text has no [MASK]: line 2 is answered with no tokens"),
        (
            ["a cat", "the <mask> sat", "a [mask]"],
            "3 texts have no [MASK]: line 2 has '<mask>', and is answered with",
        ),
        (["the [mask] sat"], "line 1 has '[mask]', and"),
        (["the ___ sat"], "line 1 has '___', and"),
        ([], "the input has no lines"),
    ],
)
def test_texts_without_a_mask_and_an_input_without_texts_are_said(lines, remark, golden, capsys):
    asking = predictions.Stream(predictions.Model(golden, Options()), "fill-mask")
    found = list(asking.answer(lines)) if lines else []
    assert [bool(one["masks"]) for one in found] == ["[MASK]" in line for line in lines]
    predict.log_summary(asking, 1.0)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(said) == (remark is not None)
    assert remark is None or remark in said[0]
