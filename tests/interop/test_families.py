"""Each family in and out again byte for byte, as older files state it, and what is not its own."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file

from bert_jax import cli
from bert_jax.config import differences, knobs, to_dict
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import config_json, export, huggingface, runs
from bert_jax.interop import families as table
from tests import families, variants
from tests.families import CASES
from tests.parity import check_same, read_parameters

QUICK = [
    ("electra", "pretraining"),
    *((f, "masked_lm") for f in ("modernbert", "neobert", "roberta")),
]
EVERY = [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
PLAIN = "roberta", "sequence_classification"


def write_model(path: Path, family: str, head: str, **changes: Any) -> Path:
    """Write a model of the recipe with its vocabulary."""
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


@pytest.mark.parametrize("name", ["pretraining", "causal_lm", "regression", "question_answering"])
def test_golden_bert_goes_out_as_it_came_in(name, tmp_path):
    source = variants.folder(tmp_path / "m", name)
    run = runs.open_run(str(source))
    out = write_export(run, tmp_path / "out")
    check_same(load_file(out / "model.safetensors"), variants.golden(name))
    before, after = read_stated(source), read_stated(out)
    other = {"classifier_dropout", "problem_type", "initializer_range"}
    for key in before.keys() & after.keys() - other:
        assert after[key] == before[key], key
    assert huggingface.read_model(out).config.model == run.config.model


@pytest.mark.parametrize(("family", "head"), EVERY)
def test_model_out_and_in_again_is_the_same_bytes(family, head, tmp_path):
    """The rows of RoBERTa's positions that no token reads too."""
    run = runs.open_run(str(write_model(tmp_path / "m", family, head)))
    out = write_export(run, tmp_path / "out")
    prefix = table.TABLE[family].prefix if head == "model" else ""  # transformers leaves it out
    given = {prefix + name: value for name, value in families.tensors(family, head).items()}
    check_same(load_file(out / "model.safetensors"), given)
    again = runs.open_run(str(out))
    assert again.config.model == run.config.model
    write_export(again, tmp_path / "twice")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "twice" / name).read_bytes() == (out / name).read_bytes()
    stated, golden = read_stated(out), families.golden(family)[0][head]
    assert stated["model_type"] == family
    assert stated["architectures"] == golden["architectures"]
    inputs = json.loads((out / "tokenizer_config.json").read_text())["model_input_names"]
    assert ("token_type_ids" in inputs) == (family == "electra")


@pytest.mark.parametrize("family", families.UNTIED)
def test_untied_output_goes_out_and_in_again(family, tmp_path):
    folder, matrix = families.untied_folder(tmp_path / "m", family)
    run = runs.open_run(str(folder))
    again = runs.open_run(str(write_export(run, tmp_path / "out")))
    assert again.config.model == run.config.model
    assert run.config.model.word_head == "untied"
    jax.tree.map(np.testing.assert_array_equal, again.params, run.params)
    cut = runs._cut_vocabulary(run.params, 24, 18)["mlm"]
    np.testing.assert_array_equal(cut["table"], np.pad(matrix[:18], [(0, 6), (0, 0)]))


RATES = {"qa_dropout": 0.3, "seq_classif_dropout": 0.4}


@pytest.mark.parametrize(
    ("family", "head", "given"),
    [
        ("distilbert", "question_answering", RATES),
        ("modernbert", "masked_lm", {"local_attention": 7}),
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


def test_wide_generator_of_electra_stays_one(tmp_path):
    """If its embeddings are as wide as its layers, it has the tensors of a BERT."""
    lines = {"embedding_size": 8, "hidden_act": "gelu"}
    folder = write_model(tmp_path / "m", "electra", "masked_lm", **lines)
    wide = {
        name: np.pad(x, [(0, 2 if size == 6 else 0) for size in x.shape], constant_values=0.1)
        for name, x in families.tensors("electra", "masked_lm").items()
        if "embeddings_project" not in name
    }
    variants.save(folder, wide)
    out = write_export(runs.open_run(str(folder)), tmp_path / "out")
    stated = read_stated(out)
    assert (stated["model_type"], stated["architectures"]) == ("electra", ["ElectraForMaskedLM"])
    assert (stated["embedding_size"], stated["hidden_size"]) == (8, 8)
    written = load_file(out / "model.safetensors")
    check_same(written, {name: wide[name] for name in written})


# --- as other files state it ----------------------------------------------------------------------


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_model_without_prefix_or_with_copies_is_read(family, tmp_path):
    given, case = families.tensors(family, "masked_lm"), table.TABLE[family]
    whole = read_parameters(write_model(tmp_path / "whole", family, "masked_lm"))
    copies = {
        f"{case.prefix}embeddings.position_ids": np.arange(16)[None],
        case.tied: given[f"{case.names['encoder/embeddings/token']}.weight"],
    }
    folder = write_model(tmp_path / "copies", family, "masked_lm")
    check_same(read_parameters(variants.save(folder, given | copies)), whole)
    bare = {k.removeprefix(case.prefix): x for k, x in given.items() if k.startswith(case.prefix)}
    folder = variants.save(write_model(tmp_path / "bare", family, "model"), bare)
    encoder = {name: value for name, value in whole.items() if name.startswith("encoder/")}
    opened = runs.open_foreign(str(folder), allow_missing=True)
    check_same(flatten_dict(jax.tree.map(np.asarray, opened.params), sep="/"), encoder)


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
    assert (same.model.rotary_base, same.model.rotary_base_near) == (1600.0, None)
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


YARN = {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}
ODD = ["sliding_attention", *["full_attention"] * 3]
OTHERS: dict[tuple[str, str], list[tuple[str, Any]]] = {  # one line of config.json each
    PLAIN: [
        ("model_type", "deberta-v2"),
        ("architectures", ["BertForSequenceClassification"]),
        ("position_embedding_type", "relative_key"),
        ("quantization_config", {"bits": 4}),
        ("problem_type", "multi_label_classification"),
        ("id2label", {"0": "a", "1": "a", "2": "b"}),
        ("id2label", {"0": "a", "2": "b", "3": "c"}),
    ],
    ("distilbert", "masked_lm"): [("is_decoder", True), ("activation", "mish")],
    ("modernbert", "masked_lm"): [
        ("decoder_bias", False),
        ("attention_bias", True),
        ("rope_scaling", {"type": "linear"}),
        ("rope_parameters", YARN),
        ("layer_types", ["full_attention"] * 3),
        ("layer_types", ["sliding_attention"] * 3),
        ("layer_types", ODD),
    ],
    ("electra", "multiple_choice"): [("summary_type", "mean"), ("summary_activation", "tanh")],
    ("electra", "pretraining"): [("architectures", ["ElectraForTraining"])],
    ("neobert", "masked_lm"): [("rms_norm", False), ("hidden_act", "gelu"), ("ngpt", True)],
}


@pytest.mark.fault(17)
@pytest.mark.parametrize(("family", "head"), OTHERS)
def test_value_of_another_function_is_refused(family, head):
    for key, value in OTHERS[family, head]:
        with pytest.raises(ConfigError, match=re.escape(key)) as caught:
            read_config(family, head, {key: value})
        assert caught.value.hint


MORE = ("layer_types", "global_attn_every_n_layers", "local_rope_theta")


@pytest.mark.fault(17)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_value_of_another_type_changes_no_knob(family, tmp_path, monkeypatch):
    """It is refused, or means the default."""
    monkeypatch.setattr(huggingface, "_shape_parameters", lambda *_: {})  # 0.1 s a value
    families.folder(tmp_path, family, "masked_lm")
    plain = to_dict(huggingface.read_model(tmp_path, allow_unused=True).config)
    stated = read_stated(tmp_path)
    for key in (*stated, *MORE):
        if type(stated.get(key)) is bool:
            continue
        for value in (math.inf, True, "", "x", [], [[]], {"a": 1}):
            found = variants.read_changed(tmp_path, stated | {key: value})
            assert found is None or differences(plain, to_dict(found.config)) == {}, (key, value)
