"""Each family in and out again byte for byte, as older files state it, and what is not its own."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import cli
from bert_jax.config import differences, knobs, to_dict
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import config_json, export, huggingface, runs
from bert_jax.interop import families as table
from tests import families, variants
from tests.families import CASES
from tests.marks import mark_slow
from tests.parity import check_same

BERT = [("bert", head) for head in ("pretraining", "causal_lm", "regression", "question_answering")]
QUICK = [*BERT, ("electra", "pretraining")]
QUICK += [(f, "masked_lm") for f in ("modernbert", "neobert", "roberta")]
PLAIN = "roberta", "sequence_classification"


def write_model(path: Path, family: str, head: str, **changes: Any) -> Path:
    """Write a golden BERT, or a model of the recipe, with its vocabulary."""
    if family == "bert":
        return variants.folder(path, head, **changes)
    return families.vocabulary(families.folder(path, family, head, **changes), family)


def write_export(run: runs.TrainedModel, folder: Path) -> Path:
    folder.mkdir()
    export.write_folder(run, folder)
    return folder


def read_stated(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def read_config(family: str, head: str, changes: dict[str, Any]) -> knobs.Config:
    """Read a model's config with other lines in its config.json; "-" leaves a line out."""
    stated = {**families.golden(family)[0][head], **changes}
    shapes = {name: value.shape for name, value in families.tensors(family, head).items()}
    stated = {key: value for key, value in stated.items() if value != "-"}
    return config_json.read_config(stated, table.find_family(stated, ()), shapes, None)


# --- in and out -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "head"), mark_slow([*BERT, *CASES], QUICK))
def test_model_out_and_in_again_is_the_same_bytes(family, head, tmp_path):
    """The rows of RoBERTa's positions that no token reads too."""
    source = write_model(tmp_path / "m", family, head)
    run = runs.open_run(str(source))
    out = write_export(run, tmp_path / "out")
    prefix = table.TABLE[family].prefix if head == "model" else ""  # transformers leaves it out
    given = load_file(source / "model.safetensors")
    check_same(
        load_file(out / "model.safetensors"), {prefix + name: x for name, x in given.items()}
    )
    again = runs.open_run(str(out))
    assert again.config.model == run.config.model
    assert again.longest == run.longest == run.config.sequence_length
    write_export(again, tmp_path / "twice")
    names = {file.relative_to(out) for file in out.rglob("*.*")} - {Path("README.md")}
    assert {Path("1_Pooling/config.json"), Path("tokenizer.json")} < names
    for name in names:
        assert (tmp_path / "twice" / name).read_bytes() == (out / name).read_bytes()
    before, after = read_stated(source), read_stated(out)
    for key in ("model_type", "architectures"):
        assert after[key] == before[key]
    inputs = json.loads((out / "tokenizer_config.json").read_text()).get("model_input_names")
    assert (inputs is None or "token_type_ids" in inputs) == (family in ("bert", "electra"))


@pytest.mark.parametrize("family", ["bert", *families.UNTIED])
def test_untied_output_goes_out_and_in_again(family, tmp_path):
    folder, matrix = families.untied_folder(tmp_path / "m", family)
    run = runs.open_run(str(folder))
    again = runs.open_run(str(write_export(run, tmp_path / "out")))
    assert again.config.model == run.config.model
    assert run.config.model.word_head == "untied"
    written = load_file(tmp_path / "out" / "model.safetensors")
    if second := table.TABLE[family].second_bias:
        np.testing.assert_array_equal(
            written[second], load_file(folder / "model.safetensors")[second]
        )
    jax.tree.map(np.testing.assert_array_equal, again.params, run.params)
    cut = runs._cut_vocabulary(run.params, 24, 18)["mlm"]
    np.testing.assert_array_equal(cut["table"], np.pad(matrix[:18], [(0, 6), (0, 0)]))


RATES = {"qa_dropout": 0.3, "seq_classif_dropout": 0.4}


@pytest.mark.parametrize(
    ("family", "head", "given"),
    [
        ("distilbert", "question_answering", RATES),
        ("modernbert", "masked_lm", {"local_attention": 7, "embedding_dropout": 0.3}),
        ("electra", "multiple_choice", {"classifier_dropout": 0.3, "summary_last_dropout": 0.4}),
    ],
)
def test_export_states_what_the_import_stated(family, head, given, tmp_path):
    """Also by way of a run, which `bert-jax import` writes."""
    folder = write_model(tmp_path / "m", family, head, **given)
    assert cli.execute(["import", f"--model={folder}", f"--output={tmp_path / 'r'}"]) == 0
    for source in (folder, tmp_path / "r"):
        run = runs.open_run(str(source))
        stated = read_stated(write_export(run, tmp_path / f"out{source.name}"))
        assert {key: stated[key] for key in given} == given


# --- as other files state it ----------------------------------------------------------------------


def test_dinkytrain_files_are_read_as_pre_norm(tmp_path):
    """They call themselves RoBERTa, and have a norm in each layer that nothing reads."""
    given = families.tensors("roberta-prelayernorm", "masked_lm")
    renamed = {k.replace("roberta_prelayernorm.", "roberta."): v for k, v in given.items()}
    unread = "roberta.encoder.layer.0.attention.self.LayerNorm.weight"
    stated = {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}
    plain = huggingface.read_model(
        families.folder(tmp_path / "m", "roberta-prelayernorm", "masked_lm")
    )
    families.folder(tmp_path / "m", "roberta-prelayernorm", "masked_lm", **stated)
    variants.save(tmp_path / "m", renamed | {unread: np.ones(8, np.float32)})
    found = huggingface.read_model(tmp_path / "m")
    assert found.config == plain.config
    assert found.config.model.norm == "pre"
    jax.tree.map(np.testing.assert_array_equal, found.params, plain.params)


def test_modernbert_is_read_as_transformers_4_and_5():
    new = read_config("modernbert", "masked_lm", {})
    assert (new.model.window, new.model.global_every) == (3, 3)
    assert (new.model.rotary_base, new.model.rotary_base_near) == (1600.0, 100.0)
    old = {"layer_types": "-", "rope_parameters": "-", "global_attn_every_n_layers": 3}
    bases = {"global_rope_theta": 1600.0, "local_rope_theta": 100.0}
    assert read_config("modernbert", "masked_lm", old | bases) == new
    without = read_config("modernbert", "masked_lm", old)  # their defaults
    assert (without.model.rotary_base, without.model.rotary_base_near) == (160_000.0, 10_000.0)
    same = read_config("modernbert", "masked_lm", old | bases | {"local_rope_theta": None})
    assert same.model.rotary_base_near is None
    seldom = read_config("modernbert", "masked_lm", old | {"global_attn_every_n_layers": 9})
    assert seldom.model.global_every == 4  # of 4 layers
    near = {"layer_types": ["sliding_attention"] * 4}
    assert read_config("modernbert", "masked_lm", near).model.global_every == 0
    everywhere = read_config("modernbert", "regression", {}).model
    assert (everywhere.window, everywhere.rotary_base_near) == (0, None)
    assert everywhere.biases


def test_roberta_positions_begin_after_the_padding(tmp_path):
    config = read_config(*PLAIN, {})
    assert (config.model.first_position, config.sequence_length) == (2, 14)
    assert read_config(*PLAIN, {"pad_token_id": 0}).model.first_position == 1
    folder = write_model(tmp_path, *PLAIN, pad_token_id=0)
    with pytest.raises(CheckpointError, match=r"pad_token_id = 0, and the padding token of .* is"):
        runs.open_run(str(folder))


def test_roberta_pooler_nobody_reads_is_left_aside(tmp_path):
    """Files of the first versions of transformers have two poolers."""
    folder = families.folder(tmp_path, *PLAIN)
    spare = {"roberta.pooler.dense.weight": np.ones((8, 8), np.float32)}
    variants.save(folder, families.tensors(*PLAIN) | spare)
    found = huggingface.read_model(folder).params["encoder"]["pooler"]["kernel"]
    expected = families.tensors(*PLAIN)["classifier.dense.weight"]
    np.testing.assert_array_equal(found.T, expected)


def test_distilbert_reads_the_dropout_of_its_class():
    for head, rate in (("question_answering", 0.3), ("sequence_classification", 0.4)):
        assert read_config("distilbert", head, RATES).model.classifier_dropout == rate


@pytest.mark.fault(17)
@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("distilbert", "is_decoder", True),
        ("distilbert", "activation", "mish"),
        ("neobert", "rms_norm", False),
        ("neobert", "ngpt", True),
    ],
)
def test_value_of_another_function_is_refused(family, key, value):
    """The transcript of `import` has lines of the other families."""
    with pytest.raises(ConfigError, match=key):
        read_config(family, "masked_lm", {key: value})


OF_MODERNBERT = {"layer_types", "global_attn_every_n_layers", "local_rope_theta"}
UNREAD = {"bos_token_id", "dtype", "eos_token_id", "transformers_version"}


@pytest.mark.fault(17)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_value_of_another_type_changes_no_knob(family, tmp_path, monkeypatch):
    """It is refused, or means the default; keys that no knob is read from may say anything."""
    monkeypatch.setattr(huggingface, "_shape_parameters", lambda *_: {})  # 0.1 s a value
    families.folder(tmp_path, family, "masked_lm")
    plain = to_dict(huggingface.read_model(tmp_path, allow_unused=True).config)
    stated = read_stated(tmp_path)
    unread = UNREAD if family == "modernbert" else UNREAD | OF_MODERNBERT
    for key in {*stated} | UNREAD | OF_MODERNBERT:
        if type(stated.get(key)) is bool:
            continue
        for value in (math.inf, True, "", "x", [], [[]], {"a": 1}):
            found = variants.read_changed(tmp_path, stated | {key: value})
            if found is None:
                assert key not in unread, value
            else:
                assert differences(plain, to_dict(found.config)) == {}, (key, value)
