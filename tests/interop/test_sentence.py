"""Settings of sentence-transformers: read, written, or refused if they would change the vector."""

import json

import pytest

from bert_jax.interop import sentence

MODULES = [{"type": "a.Transformer", "path": ""}, {"type": "b.Pooling", "path": "1_Pooling"}]


def test_read_takes_an_empty_prompt(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    for name, content in {
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "modules.json": MODULES,
        "config_sentence_transformers.json": {"default_prompt_name": "q", "prompts": {"q": ""}},
    }.items():
        (tmp_path / name).write_text(json.dumps(content))
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
