"""Folders of others that mean harm: links out of them, names without an end, code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, DataError
from bert_jax.interop import runs

from . import variants

GOLDEN = variants.GOLDEN / "huggingface" / "pretraining"
READ = (  # the files of a folder that are read where they are there
    *("config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *(
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ),
)
CONTENTS = {
    "modules.json": [
        {"type": "a.Transformer", "path": ""},
        {"type": "b.Pooling", "path": "1_Pooling"},
    ],
    "1_Pooling/config.json": {"pooling_mode": "cls"},
    "sentence_bert_config.json": {"max_seq_length": 16},
    "config_sentence_transformers.json": {},
    "tokenizer_config.json": {"do_lower_case": True},
}


def model(folder: Path) -> Path:
    """A folder with everything that is read, but for a tokenizer.json."""
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        shutil.copy(GOLDEN / name, folder)
    for name, value in CONTENTS.items():
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.fault(30)
@pytest.mark.parametrize("name", READ)
def test_no_file_of_a_model_is_read_through_a_link_out_of_its_folder(name, tmp_path):
    folder = model(tmp_path / "m")
    if name == "tokenizer.json":
        tokenizers.load(folder / "vocab.txt").save(tmp_path)
        (folder / "tokenizer_config.json").unlink()
    else:
        shutil.move(folder / name, tmp_path / Path(name).name)
    (folder / name).symlink_to(tmp_path / Path(name).name)
    with pytest.raises(CheckpointError, match=r"is a link to .*, outside its folder") as caught:
        runs.open_run(str(folder))
    assert str(folder / name) in str(caught.value)
    if "token" in name or "vocab" in name:
        with pytest.raises(DataError, match="outside its folder"):
            tokenizers.load(folder)


@pytest.mark.fault(30)
def test_the_links_of_a_hub_cache_are_followed_for_every_file(tmp_path):
    plain, blobs = model(tmp_path / "plain"), tmp_path / "models--a--b" / "blobs"
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    (snapshot / "1_Pooling").mkdir(parents=True)
    for number, name in enumerate(file for file in READ if (plain / file).exists()):
        shutil.copy(plain / name, blobs / f"f{number}")
        (snapshot / name).symlink_to("../" * (2 + name.count("/")) + f"blobs/f{number}")
    ours, theirs = runs.open_run(str(plain)), runs.open_run(str(snapshot))
    assert (
        theirs.sentence
        == ours.sentence
        == {"pooling": "cls", "normalize": False, "length": 16, "lowercase": False}
    )
    assert theirs.tokenizer.hash == ours.tokenizer.hash
    shutil.copytree(snapshot, tmp_path / "copy", symlinks=True)
    with pytest.raises(CheckpointError, match=r"outside its folder|does not exist"):
        runs.open_run(str(tmp_path / "copy"))


@pytest.mark.fault(28)
def test_names_of_foreign_tensors_are_shortened(tmp_path):
    more = {f"x{i}" * 50_000: np.zeros(1, np.float32) for i in range(3)}
    variants.save(model(tmp_path / "m"), variants.golden("pretraining") | more)
    with pytest.raises(
        CheckpointError, match=r"holds bert\.x0x0.*\.\.\., .*which the model of its config"
    ) as caught:
        runs.open_run(str(tmp_path / "m"))
    assert len(str(caught.value)) < 600


@pytest.mark.fault(28)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, "x" * 10**6)
            for key in ("hidden_act", "model_type", "vocab_size", "problem_type", "layer_norm_eps")
        ),
        ("architectures", ["BertFor" + "x" * 10**6]),
        ("architectures", ["x"] * 10**6),
        ("auto_map", {"AutoModel": "x" * 10**6}),
        ("hidden_dropout_prob", 10**300),
        ("num_attention_heads", 10**300),
    ],
)
def test_values_of_a_foreign_config_are_shortened(key, value, tmp_path):
    folder = model(tmp_path / "m")
    stated = json.loads((folder / "config.json").read_text()) | {key: value}
    if key == "problem_type":
        stated["architectures"] = ["BertForSequenceClassification"]
    (folder / "config.json").write_text(json.dumps(stated))
    with pytest.raises(CheckpointError) as caught:
        runs.open_run(str(folder))
    assert key in str(caught.value)
    assert len(f"{caught.value} {caught.value.hint}") < 800


@pytest.mark.fault(28)
def test_labels_of_a_foreign_config_are_shortened(tmp_path):
    shutil.copytree(GOLDEN.parent / "sequence_classification", tmp_path / "m")
    shutil.copy(GOLDEN / "vocab.txt", tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    stated = json.loads(file.read_text())
    for named in (
        {str(i): "x" * 10**5 for i in range(len(stated["id2label"]))},
        {str(2 * i): f"x{i}" for i in range(10**4)},
        {str(i): [["x"] * 10**5] for i in range(len(stated["id2label"]))},
        ["x" * 10**5],
    ):
        file.write_text(json.dumps(stated | {"id2label": named}))
        with pytest.raises(CheckpointError, match="id2label") as caught:
            runs.open_run(str(tmp_path / "m"))
        assert len(str(caught.value)) < 400
