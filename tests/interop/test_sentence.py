"""Settings of sentence-transformers: read, written, or refused if they would change the vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bert_jax.errors import CheckpointError
from bert_jax.interop import runs, sentence
from tests import variants

MODULES = [{"type": "a.Transformer", "path": ""}, {"type": "b.Pooling", "path": "1_Pooling"}]
NORMALIZE = {"type": "c.Normalize", "path": "2_Normalize"}
REFUSED: dict[str, tuple[str, Any]] = {  # what the error says -> a file, and its contents
    "prepends the prompt 'q'": (
        "config_sentence_transformers.json",
        {"default_prompt_name": "q", "prompts": {"q": "query: "}},
    ),
    "cuts vectors to 4 numbers": ("config_sentence_transformers.json", {"truncate_dim": 4}),
    "pools another output": (
        "sentence_bert_config.json",
        {"modality_config": {"text": {"method_output_name": "pooler_output"}}},
    ),
    "lower-cases texts": ("sentence_bert_config.json", {"do_lower_case": True}),
    "pooling_mode_max_tokens": ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
    "names the folder '../x'": ("modules.json", [MODULES[0], MODULES[1] | {"path": "../x"}]),
    "names the folder '..'": ("modules.json", [MODULES[0], MODULES[1] | {"path": ".."}]),
    "chains ['Transformer']": ("modules.json", MODULES[:1]),
}


def folder(path: Path, **pooling: Any) -> Path:
    """A golden model with the files of sentence-transformers."""
    variants.folder(path)
    (path / "1_Pooling").mkdir()
    files = {
        "1_Pooling/config.json": pooling or {"pooling_mode": "cls"},
        "modules.json": MODULES,
        "tokenizer_config.json": {"do_lower_case": False, "model_max_length": 20},
    }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    return path


@pytest.mark.fault(18)
@pytest.mark.parametrize("said", REFUSED)
def test_read_settings_refuses_what_changes_the_vector(said, tmp_path):
    """The same folder without the line is read."""
    path = folder(tmp_path)
    assert runs.open_run(str(path)).sentence["pooling"] == "cls"
    name, content = REFUSED[said]
    (path / name).write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        runs.open_run(str(path))
    assert said in str(caught.value)


def test_read_takes_an_empty_prompt_and_normalization(tmp_path):
    path = folder(tmp_path, pooling_mode_mean_tokens=True, pooling_mode_cls_token=False)
    (path / "modules.json").write_text(json.dumps([*MODULES, NORMALIZE]))
    prompts = {"default_prompt_name": "q", "prompts": {"q": ""}}
    (path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16}))
    assert sentence.read_settings(path) == {
        "pooling": "mean",
        "normalize": True,
        "length": 16,
        "lowercase": False,
    }


def test_read_ignores_lengths_beyond_all_models(tmp_path):
    path = folder(tmp_path)
    assert sentence.read_length(path) == 20
    for length in (10**30, 0, "20", None):
        (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
        assert sentence.read_length(path) is None


@pytest.mark.parametrize("stated", [{}, {"pooling": "cls", "normalize": True, "length": 12}])
def test_settings_written_are_read_again(stated, tmp_path):
    sentence.write_settings(tmp_path, stated, length=16, width=8)
    found = sentence.read_settings(tmp_path)
    usual = {"pooling": "mean", "normalize": False, "length": 16, "lowercase": False}
    assert found == usual | stated
