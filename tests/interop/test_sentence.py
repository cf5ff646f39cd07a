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
REFUSED: dict[str, tuple[str, Any]] = {  # what the error says -> a file, and its contents
    "prepends a prompt": (
        "config_sentence_transformers.json",
        {"default_prompt_name": "q", "prompts": {"q": "query: "}},
    ),
    "cuts vectors": ("config_sentence_transformers.json", {"truncate_dim": 4}),
    "lower-cases texts": ("sentence_bert_config.json", {"do_lower_case": True}),
    "pooling_mode_max_tokens": ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
    "names the folder '../x'": ("modules.json", [MODULES[0], MODULES[1] | {"path": "../x"}]),
    "names the folder '..'": ("modules.json", [MODULES[0], MODULES[1] | {"path": ".."}]),
    "chains ['Transformer']": ("modules.json", MODULES[:1]),
}


def write_files(path: Path, files: dict[str, Any]) -> None:
    (path / "1_Pooling").mkdir(exist_ok=True)
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))


@pytest.mark.fault(18)
@pytest.mark.parametrize("said", REFUSED)
def test_setting_that_changes_the_vector_is_refused(said, tmp_path):
    name, content = REFUSED[said]
    files = {
        "1_Pooling/config.json": {"pooling_mode": "cls"},
        "modules.json": MODULES,
        "tokenizer_config.json": {"do_lower_case": False, "model_max_length": 20},
    }
    write_files(variants.folder(tmp_path), files | {name: content})
    with pytest.raises(CheckpointError) as caught:
        runs.open_run(str(tmp_path))
    assert said in str(caught.value)


def test_read_takes_an_empty_prompt(tmp_path):
    prompts = {"default_prompt_name": "q", "prompts": {"q": ""}}
    files = {"1_Pooling/config.json": {"pooling_mode_mean_tokens": True}, "modules.json": MODULES}
    write_files(tmp_path, files | {"config_sentence_transformers.json": prompts})
    found = {"pooling": "mean", "normalize": False, "length": None, "lowercase": False}
    assert sentence.read_settings(tmp_path) == found


def test_read_ignores_lengths_beyond_all_models(tmp_path):
    for length, read in ((10**30, None), (0, None), ("20", None), (None, None), (20, 20)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
        assert sentence.read_length(tmp_path) == read


@pytest.mark.parametrize("stated", [{}, {"pooling": "cls", "normalize": True, "length": 12}])
def test_settings_written_are_read_again(stated, tmp_path):
    sentence.write_settings(tmp_path, stated, length=16, width=8)
    usual = {"pooling": "mean", "normalize": False, "length": 16, "lowercase": False}
    assert sentence.read_settings(tmp_path) == usual | stated
