"""TensorFlow 1 checkpoints: google's names, read by TensorFlow if it is installed.

The checkpoint is a classifier as google's run_classifier.py leaves it, in two data files because
large models have several.
"""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.errors import CheckpointError
from bert_jax.interop import huggingface, tf1
from tests import variants
from tests.parity import GOLDEN

FOLDER = GOLDEN / "tf1"
PREFIX = FOLDER / "model.ckpt-1234"
MODEL = GOLDEN / "huggingface" / "classifier_one_layer"
NAMES = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/encoder/layer_3/output/LayerNorm/gamma": "bert.encoder.layer.3.output.LayerNorm.weight",
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "bert/pooler/dense/kernel/adam_m": "",
    "global_step": "",
}


@pytest.fixture
def tensorflow() -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow reads these checkpoints: extra tf1")


def test_rename_variable_gives_hugging_faces_name():
    assert {variable: tf1.rename_variable(variable) for variable in NAMES} == NAMES


def test_is_checkpoint_knows_prefix_index_and_folder(tmp_path):
    for path in (PREFIX, Path(f"{PREFIX}.index"), FOLDER):
        assert tf1.is_checkpoint(path)
    for path in (MODEL, MODEL / "model.safetensors", tmp_path, tmp_path / "absent"):
        assert not tf1.is_checkpoint(path)


@pytest.mark.parametrize("path", [PREFIX, Path(f"{PREFIX}.index"), FOLDER])
def test_checkpoint_is_read_as_its_model(tensorflow, path):
    """Its config is google's, and google's script has one class; slots of the optimizer are left
    aside.
    """
    found, golden = huggingface.read_model(path), huggingface.read_model(MODEL)
    assert found.config.model == golden.config.model
    assert tuple(found.config.objectives) == tuple(golden.config.objectives)
    jax.tree.map(np.testing.assert_array_equal, found.params, golden.params)


def test_googles_config_has_the_head_of_the_file(tmp_path):
    """Its config.json says no class of model."""
    folder = variants.folder(tmp_path, MODEL.name)
    (folder / "config.json").unlink()
    shutil.copy(FOLDER / "bert_config.json", folder)
    assert tuple(huggingface.read_model(folder).config.objectives) == ("classify",)


def test_damaged_checkpoint_is_one_line(tensorflow, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "m")
    data = tmp_path / "m" / f"{PREFIX.name}.data-00001-of-00002"
    data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))
    with pytest.raises(CheckpointError, match=r"model\.ckpt-1234 cannot be read: ") as caught:
        huggingface.read_model(tmp_path / "m")
    assert "\n" not in f"{caught.value}{caught.value.hint}"
