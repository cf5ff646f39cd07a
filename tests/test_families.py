"""RoBERTa, DistilBERT, ModernBERT, ELECTRA and NeoBERT: outputs and gradients of transformers, of
NeoBERT those of its authors' code, from the same weights, in and out again byte for byte, and what
is no model of theirs refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import config_json, export, huggingface, initial, parameter_names, runs
from bert_jax.interop import families as table
from bert_jax.models.encoder import Encoder, read_layers
from bert_jax.objectives import network
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from bert_jax.system import trees
from tests import families, toy, variants
from tests.families import CASES, OURS

QUICK = [
    *(("modernbert", "sequence_classification"), ("roberta", "masked_lm")),
    *(("electra", "pretraining"), ("neobert", "masked_lm")),
]
EVERY = [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
PLAIN = "roberta", "sequence_classification"


def distance(ours: Any, theirs: np.ndarray, largest: float = 0.0) -> float:
    """The largest difference, by the largest reference value."""
    assert np.shape(ours) == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs).max() / (largest or np.abs(theirs).max()))


def opened(path: Path, family: str, head: str, **changes: Any) -> runs.TrainedModel:
    """A model of the recipe with its vocabulary, as commands open it."""
    families.vocabulary(families.folder(path, family, head, **changes), family)
    return runs.open_run(str(path))


def bare(family: str, head: str) -> str:
    """What transformers leaves out of the names of a model without a head."""
    return table.TABLE[family].prefix if head == "model" else ""


def exported(run: runs.TrainedModel, folder: Path) -> Path:
    folder.mkdir()
    export.write(run, folder)
    return folder


def batch(family: str, head: str) -> dict[str, np.ndarray]:
    given = {k: v.reshape(-1, v.shape[-1]) for k, v in families.batch(family, head).items()}
    ids = given["input_ids"].astype(np.int32)
    columns = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    return {
        "tokens": ids,
        "type_ids": given.get("token_type_ids", np.zeros_like(ids)).astype(np.int32),
        "segment_ids": given["attention_mask"].astype(np.int32),
        "positions": columns,
        "predict_positions": columns,
        "cls_positions": np.zeros((len(ids), 1), np.int32),
    }


# --- the same function ----------------------------------------------------------------------------


def differences(path: Path, family: str, head: str) -> dict[str, float]:
    """By what outputs and gradients differ from transformers', relative to the largest of each.

    Padding positions are read by nobody, and left out; the gradient of a key's bias cancels, and
    is held to that of the key's weights. So may that of a norm's scale in one layer, which is held
    to the largest of all layers: they are one tensor here (ModernBERT's layers.2.mlp_norm is nine
    times smaller than another's, and 1.6e-5 off by rounding on an EPYC, not on a Xeon).
    """
    found = huggingface.read(families.folder(path, family, head))
    golden, b = families.outputs(family, head), batch(family, head)
    mask = families.batch(family, head)["attention_mask"]
    (gradients, ours), rows = _computed(found, family, head, b), table.TABLE[family].rows
    far = {}
    for name, value in ours.items():
        real = mask > 0 if value.shape[: mask.ndim] == mask.shape else ...
        if name == "hidden_states":
            layers = enumerate(zip(value, golden[name], strict=True))
            far |= {f"{name} {i}": distance(x[mask > 0], y[mask > 0]) for i, (x, y) in layers}
        else:
            far[name] = distance(value[real], golden[name][real])
    flat = {name: np.asarray(x) for name, x in trees.flat(gradients).items()}
    assert ("encoder/layer_0/attention_norm/scale" in flat) == found.config.model.first_norm
    mine = parameter_names.to_theirs(flat, rows(found.config.objectives), 20)
    prefix = bare(family, head)
    theirs = {name: golden[f"gradient/{name.removeprefix(prefix)}"] for name in mine}
    assert len(theirs) == sum(name.startswith("gradient/") for name in golden)
    for name, gradient in theirs.items():
        sized = [gradient]
        if name.endswith(("key.bias", "k_lin.bias")):
            sized = [theirs[name.replace("bias", "weight")]]
        elif name.endswith("norm.weight"):
            kind = re.sub(r"\d+", "*", name)
            sized = [value for other, value in theirs.items() if re.sub(r"\d+", "*", other) == kind]
        largest = max(float(np.abs(value).max()) for value in sized)
        far[f"gradient of {name}"] = distance(mine[name], gradient, largest)
    return far


def _computed(found: huggingface.Foreign, family: str, head: str, b: dict) -> tuple[Any, dict]:
    """Gradients of the weighted sum of all outputs, and the outputs by transformers' names."""
    cfg = found.config.model
    golden, ours = families.outputs(family, head), OURS[head]
    mask = families.batch(family, head)["attention_mask"]
    net = network.Network(cfg, 20, ((ours, 3),) if ours else ())
    pool = "pooler" in found.params["encoder"]

    def compute(params):
        states = {}
        if head == "model":
            encoded = Encoder(cfg, 20, pool=pool).apply({"params": params["encoder"]}, b)
            outputs = {"last_hidden_state": encoded.hidden}
            outputs |= {"pooler_output": encoded.pooled[:, 0]} if pool else {}
            states = {"hidden_states": read_layers(cfg, 20, params["encoder"], b).hidden}
        else:
            value = net.apply({"params": params}, b)[ours]
            value = value.logits if ours == "replaced" else value
            if head == "question_answering":
                outputs = {"start_logits": value[..., 0], "end_logits": value[..., 1]}
            else:
                shape = golden["logits"].shape
                words = slice(20) if ours in ("mlm", "causal_lm") else slice(None)
                outputs = {"logits": value[..., words].reshape(shape)}
        total = sum(
            jnp.sum(value * families.cotangent(name, value.shape, mask))
            for name, value in outputs.items()
        )
        return total, outputs | states

    return jax.jit(jax.grad(compute, has_aux=True))(found.params)


@pytest.mark.parametrize(("family", "head"), EVERY)
def test_outputs_and_gradients_are_those_of_transformers(family, head, tmp_path):
    far = differences(tmp_path, family, head)
    assert {name: value for name, value in far.items() if value > 1e-5} == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize(("family", "head"), [case for case in CASES if case[0] != "neobert"])
def test_transformers_loads_what_is_exported(family, head, tmp_path):
    """Where torch and transformers are installed."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    exported(opened(tmp_path / "m", family, head), tmp_path / "out")
    stated = json.loads((tmp_path / "out" / "config.json").read_text())
    kind = getattr(transformers, stated["architectures"][0])
    model, report = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] - {"roberta.pooler.dense.weight"}
    assert not report["unexpected_keys"]
    given = {name: torch.tensor(x) for name, x in families.batch(family, head).items()}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        found = model.eval()(**given)
        if head != "multiple_choice":  # a pair has no types that the model would not take
            model(**tokenizer("w5 w6", "w7", return_tensors="pt"))
    mask = families.batch(family, head)["attention_mask"]
    golden = families.outputs(family, head)
    for name in ("last_hidden_state", "logits", "start_logits", "end_logits"):
        if name in golden:
            real = mask > 0 if golden[name].shape[: mask.ndim] == mask.shape else ...
            assert distance(found[name].numpy()[real], golden[name][real]) <= 1e-5, name


# --- in and out -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "head"), EVERY)
def test_in_out_and_in_again_is_the_same_in_every_byte(family, head, tmp_path):
    """The rows of RoBERTa's positions that no token reads too."""
    run = opened(tmp_path / "m", family, head)
    exported(run, tmp_path / "out")
    given, written = families.tensors(family, head), load_file(tmp_path / "out/model.safetensors")
    assert {bare(family, head) + name for name in given} == written.keys()
    for name, value in given.items():
        np.testing.assert_array_equal(written[bare(family, head) + name], value, err_msg=name)
    again = runs.open_run(str(tmp_path / "out"))
    assert again.config.model == run.config.model
    exported(again, tmp_path / "twice")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    stated = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (stated["model_type"], stated["architectures"]) == (
        family,
        families.golden(family)[0][head]["architectures"],
    )
    assert f"- {family}" in (tmp_path / "out" / "README.md").read_text()
    read = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert ("token_type_ids" in read["model_input_names"]) == (family == "electra")


UNTIED = ("modernbert", "distilbert", "electra")


def untied(path: Path, family: str) -> tuple[runs.TrainedModel, np.ndarray]:
    """A masked language model whose output matrix is no table of tokens, and that matrix."""
    folder = families.folder(path, family, "masked_lm", tie_word_embeddings=False)
    matrix = families.tensor(
        "untied",
        "output",
        families.tensors(family, "masked_lm")[
            table.TABLE[family].rows(("mlm",))["encoder/embeddings/token"].theirs
        ].shape,
    )
    variants.save(
        folder, families.tensors(family, "masked_lm") | {table.TABLE[family].tied: matrix}
    )
    families.vocabulary(folder, family)
    return runs.open_run(str(folder)), matrix


@pytest.mark.parametrize("family", UNTIED)
def test_an_untied_output_reads_its_own_matrix(family, tmp_path):
    """transformers' logits of the tied model say what vector the matrix is multiplied by."""
    run, matrix = untied(tmp_path / "m", family)
    tensors, names = families.tensors(family, "masked_lm"), table.TABLE[family].rows(("mlm",))
    tokens, bias = (
        tensors[names[ours].theirs].astype(np.float64)
        for ours in ("encoder/embeddings/token", "mlm/bias")
    )
    golden = families.outputs(family, "masked_lm")["logits"].astype(np.float64)
    expected = (golden - bias) @ np.linalg.pinv(tokens).T @ matrix.T + bias
    net = network.build(run.config, 20)
    found = jax.jit(net.apply)({"params": run.params}, batch(family, "masked_lm"))["mlm"]
    real = families.batch(family, "masked_lm")["attention_mask"] > 0
    assert distance(found[real][:, :20], expected[real]) < 1e-5
    exported(run, tmp_path / "out")
    again = runs.open_run(str(tmp_path / "out"))
    assert again.config.model == run.config.model
    jax.tree.map(np.testing.assert_array_equal, again.params, run.params)
    cut = runs._cut(run.params, 24, 18)["mlm"]
    np.testing.assert_array_equal(cut["table"], np.pad(matrix[:18], [(0, 6), (0, 0)]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("family", UNTIED)
def test_transformers_loads_an_untied_output(family, tmp_path):
    """Where torch and transformers are installed."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    run, _ = untied(tmp_path / "m", family)
    exported(run, tmp_path / "out")
    given = {n: torch.tensor(x) for n, x in families.batch(family, "masked_lm").items()}
    found = jax.jit(network.build(run.config, 20).apply)(
        {"params": run.params}, batch(family, "masked_lm")
    )["mlm"]
    real = families.batch(family, "masked_lm")["attention_mask"] > 0
    for folder in ("m", "out"):
        model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / folder)
        with torch.no_grad():
            theirs = model.eval()(**given).logits.numpy()
        assert distance(found[real][:, :20], theirs[real]) < 1e-5


RATES = {"qa_dropout": 0.3, "seq_classif_dropout": 0.4}


@pytest.mark.parametrize(
    ("family", "head", "given"),
    [
        ("distilbert", "question_answering", RATES),
        ("distilbert", "sequence_classification", RATES),
        ("modernbert", "masked_lm", {"local_attention": 7}),
        ("electra", "multiple_choice", {"classifier_dropout": 0.3, "summary_last_dropout": 0.4}),
    ],
)
def test_export_states_what_the_import_stated(family, head, given, tmp_path):
    """Also by way of a run, which `bert-jax import` writes."""
    run = opened(tmp_path / "m", family, head, **given)
    assert cli.execute(["import", f"--model={tmp_path / 'm'}", f"--output={tmp_path / 'r'}"]) == 0
    exported(run, tmp_path / "out")
    exported(runs.open_run(str(tmp_path / "r")), tmp_path / "again")
    for folder in ("out", "again"):
        stated = json.loads((tmp_path / folder / "config.json").read_text())
        assert {key: stated[key] for key in given} == given


def test_distilbert_answers_with_the_dropout_of_answers():
    for head, rate in (("question_answering", 0.3), ("sequence_classification", 0.4)):
        assert parsed("distilbert", head, RATES).model.classifier_dropout == rate


def test_a_wide_generator_of_electra_stays_one(tmp_path):
    """One whose embeddings are as wide as its layers has the tensors of a BERT."""
    stated = {"embedding_size": 8, "hidden_act": "gelu"}
    folder = families.folder(tmp_path / "m", "electra", "masked_lm", **stated)
    narrow = families.tensors("electra", "masked_lm")
    wide = {
        name: np.pad(x, [(0, 2 if size == 6 else 0) for size in x.shape], constant_values=0.1)
        for name, x in narrow.items()
        if "embeddings_project" not in name
    }
    variants.save(folder, wide)
    families.vocabulary(folder, "electra")
    out = exported(runs.open_run(str(folder)), tmp_path / "out")
    stated = json.loads((out / "config.json").read_text())
    assert (stated["model_type"], stated["architectures"]) == ("electra", ["ElectraForMaskedLM"])
    assert (stated["embedding_size"], stated["hidden_size"]) == (8, 8)
    for name, value in load_file(out / "model.safetensors").items():
        np.testing.assert_array_equal(value, wide[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("family", families.FAMILIES)
def test_stored_otherwise_it_is_the_same_model(family, tmp_path):
    """In shards, in half precision, without the prefix of the encoder, with copies and buffers."""
    given, case = families.tensors(family, "masked_lm"), table.TABLE[family]
    whole = opened(tmp_path / "whole", family, "masked_lm").params
    rows, prefix = case.rows(("mlm",)), case.prefix
    copies = {f"{prefix}embeddings.position_ids": np.arange(16)[None]}
    if case.tied:
        copies[case.tied] = given[rows["encoder/embeddings/token"].theirs]
    if case.second_bias:
        copies[case.second_bias] = given[rows["mlm/bias"].theirs]
    short = {name.removeprefix(prefix): x for name, x in given.items() if name.startswith(prefix)}
    half = {name: x.astype(ml_dtypes.bfloat16) for name, x in given.items()}
    for name, stored, parts, head in (
        ("copies", given | copies, 0, "masked_lm"),
        ("shards", given, 3, "masked_lm"),
        ("bare", short, 0, "model"),
        ("half", half, 0, "masked_lm"),
    ):
        folder = families.folder(tmp_path / name, family, head)
        (folder / "model.safetensors").unlink()
        (variants.save_sharded(folder, stored, parts) if parts else variants.save(folder, stored))
        found = trees.flat(huggingface.read(folder, allow_missing=True).params)
        for key, value in trees.flat(whole).items():
            if name == "half":
                value = value.astype(ml_dtypes.bfloat16).astype(np.float32)
            if name != "bare" or key.startswith("encoder/"):
                np.testing.assert_array_equal(found[key], value, err_msg=f"{name} {key}")


def test_files_of_dinkytrain_are_read_as_what_they_are(tmp_path):
    """They call themselves RoBERTa, and have a norm in each layer that nothing reads."""
    given = families.tensors("roberta-prelayernorm", "masked_lm")
    renamed = {k.replace("roberta_prelayernorm.", "roberta."): v for k, v in given.items()}
    unread = "roberta.encoder.layer.0.attention.self.LayerNorm.weight"
    stated = {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}
    theirs = families.folder(tmp_path / "m", "roberta-prelayernorm", "masked_lm")
    plain = huggingface.read(theirs)
    families.folder(tmp_path / "m", "roberta-prelayernorm", "masked_lm", **stated)
    variants.save(tmp_path / "m", renamed | {unread: np.ones(8, np.float32)})
    found = huggingface.read(tmp_path / "m")
    assert found.config == plain.config
    assert found.config.model.norm == "pre"
    jax.tree.map(np.testing.assert_array_equal, found.params, plain.params)


def parsed(family: str, head: str, changes: dict[str, Any]) -> knobs.Config:
    """The config of a folder with other lines; its tensors are looked at, not loaded."""
    stated = {**families.golden(family)[0][head], **changes}
    case, values = table.of(stated, ()), families.tensors(family, head)
    return config_json.parse({k: v for k, v in stated.items() if v != "-"}, case, values, None)[0]


def test_modernbert_is_read_as_either_transformers_states_it():
    new = parsed("modernbert", "masked_lm", {})
    assert (new.model.window, new.model.global_every) == (3, 3)
    assert (new.model.rotary_base, new.model.rotary_base_near) == (1600.0, 100.0)
    old = {"layer_types": "-", "rope_parameters": "-", "global_attn_every_n_layers": 3}
    bases = {"global_rope_theta": 1600.0, "local_rope_theta": 100.0}
    assert parsed("modernbert", "masked_lm", old | bases) == new
    without = parsed("modernbert", "masked_lm", old)  # their defaults
    assert (without.model.rotary_base, without.model.rotary_base_near) == (160_000.0, 10_000.0)
    same = parsed("modernbert", "masked_lm", old | bases | {"local_rope_theta": None})
    assert (same.model.rotary_base, same.model.rotary_base_near) == (1600.0, None)
    near = {"layer_types": ["sliding_attention"] * 4}
    assert parsed("modernbert", "masked_lm", near).model.global_every == 0
    everywhere = parsed("modernbert", "regression", {}).model
    assert (everywhere.window, everywhere.rotary_base_near) == (0, None)
    assert everywhere.biases


def test_positions_of_roberta_begin_after_the_padding_token(tmp_path):
    config = parsed(*PLAIN, {})
    assert (config.model.first_position, config.sequence_length) == (2, 14)
    assert parsed(*PLAIN, {"pad_token_id": 0}).model.first_position == 1
    families.folder(tmp_path, *PLAIN, pad_token_id=0)
    families.vocabulary(tmp_path, "roberta")
    with pytest.raises(
        CheckpointError, match=r"pad_token_id = 0, and the padding token of .* is 1"
    ):
        runs.open_run(str(tmp_path))


@pytest.mark.slow
def test_a_pooler_that_its_class_does_not_read_is_left_aside(tmp_path):
    """Files of the first versions of transformers have both."""
    folder = families.folder(tmp_path, *PLAIN)
    spare = {f"roberta.pooler.dense.{end}": np.ones((8,) * n) for end, n in {"weight": 2}.items()}
    variants.save(folder, families.tensors(*PLAIN) | spare)
    found = huggingface.read(folder).params["encoder"]["pooler"]["kernel"]
    expected = families.tensors(*PLAIN)["classifier.dense.weight"]
    np.testing.assert_array_equal(found.T, expected)


# --- refused --------------------------------------------------------------------------------------

OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    (*PLAIN, {"model_type": "deberta-v2"}, "model_type = 'deberta-v2'"),
    (*PLAIN, {"model_type": ["roberta"]}, "model_type"),
    (*PLAIN, {"architectures": ["BertForSequenceClassification"]}, "architectures"),
    (*PLAIN, {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    (*PLAIN, {"add_cross_attention": True}, "add_cross_attention"),
    (*PLAIN, {"pad_token_id": -1}, "pad_token_id is -1"),
    (*PLAIN, {"pad_token_id": 15}, "sequence_length"),
    (*PLAIN, {"hidden_size": 16}, "hidden_size = 16 and roberta.embeddings"),
    (*PLAIN, {"num_hidden_layers": 3}, "num_hidden_layers = 3 and the file has 2"),
    ("roberta-prelayernorm", "masked_lm", {"is_decoder": "false"}, "is_decoder"),
    ("distilbert", "masked_lm", {"is_decoder": True}, "is_decoder"),
    ("distilbert", "masked_lm", {"hidden_dim": 2**30}, "hidden_dim = 1073741824 and"),
    ("distilbert", "masked_lm", {"activation": "mish"}, "activation"),
    ("distilbert", "masked_lm", {"n_heads": 3}, "heads"),
    ("modernbert", "masked_lm", {"intermediate_size": 24}, "intermediate_size = 24 and"),
    ("modernbert", "masked_lm", {"decoder_bias": False}, "decoder_bias"),
    ("modernbert", "masked_lm", {"norm_bias": True}, "attention_bias = False"),
    ("modernbert", "masked_lm", {"mlp_bias": 0}, "mlp_bias"),
    ("modernbert", "masked_lm", {"rope_scaling": {"type": "linear"}}, "rope_scaling"),
    (
        "modernbert",
        "masked_lm",
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
        "rope_parameters.full_attention",
    ),
    (
        "modernbert",
        "masked_lm",
        {"rope_parameters": None, "global_rope_theta": "1e4"},
        "global_rope_theta",
    ),
    ("modernbert", "masked_lm", {"classifier_pooling": "max"}, "classifier_pooling"),
    ("modernbert", "masked_lm", {"classifier_activation": "mish"}, "classifier_activation"),
    ("modernbert", "masked_lm", {"layer_types": ["full_attention"] * 3}, "layer_types"),
    ("modernbert", "masked_lm", {"layer_types": "full_attention"}, "layer_types"),
    (
        "modernbert",
        "masked_lm",
        {"layer_types": ["sliding_attention", *["full_attention"] * 3]},
        "layer_types has 3 full_attention among 4",
    ),
    ("modernbert", "masked_lm", {"local_attention": 1}, "local_attention"),
    ("electra", "masked_lm", {"embedding_size": 8}, "embedding_size = 8 and electra.embeddings"),
    ("electra", "masked_lm", {"hidden_size": 6}, "hidden_size = 6 and electra.encoder.layer.0"),
    ("electra", "multiple_choice", {"summary_type": "mean"}, "summary_type"),
    ("electra", "multiple_choice", {"summary_activation": "tanh"}, "summary_activation"),
    ("electra", "pretraining", {"architectures": ["ElectraForTraining"]}, "architectures"),
    ("neobert", "masked_lm", {"rms_norm": False}, "rms_norm"),
    ("neobert", "masked_lm", {"hidden_act": "gelu"}, "hidden_act"),
    ("neobert", "masked_lm", {"ngpt": True}, "ngpt"),
    ("neobert", "masked_lm", {"intermediate_size": 0}, "intermediate_size"),
]


@pytest.mark.fault(28)
@pytest.mark.parametrize(("family", "head", "changes", "said"), OTHERS)
def test_a_value_that_makes_it_another_function_is_refused(family, head, changes, said):
    with pytest.raises(ConfigError) as caught:
        parsed(family, head, changes)
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_kind_of_model_that_is_not_read_is_refused_with_those_that_are(tmp_path, capsys):
    folder = families.folder(tmp_path / "m", *PLAIN, model_type="albert")
    assert cli.execute(["import", f"--model={folder}", f"--output={tmp_path / 'out'}"]) == 4
    error, hint = capsys.readouterr().err.splitlines()
    assert "model_type = 'albert', a kind of model that is not read" in error
    kinds = "bert, roberta, roberta-prelayernorm, distilbert, modernbert, electra, neobert"
    assert hint == f"hint: one of: {kinds}"
    assert not (tmp_path / "out").exists()


@pytest.mark.fault(28)
@pytest.mark.slow
@pytest.mark.parametrize("family", families.FAMILIES)
def test_no_change_of_config_json_ends_in_a_traceback(family, tmp_path, monkeypatch):
    real, once = huggingface._shapes, []
    monkeypatch.setattr(
        huggingface, "_shapes", lambda *a: once[0] if once else once.append(real(*a)) or once[0]
    )
    huggingface.read(families.folder(tmp_path, family, "masked_lm"))
    stated = families.golden(family)[0]["masked_lm"]
    for key in [*stated, "layer_types", "global_attn_every_n_layers", "local_rope_theta"]:
        for value in (None, -1, 0, 10**20, 1e308, True, "", "x", [], [[]], {}, {"a": 1}):
            (tmp_path / "config.json").write_text(json.dumps(stated | {key: value}))
            with contextlib.suppress(CheckpointError):
                huggingface.read(tmp_path)


# --- which family expresses a model ---------------------------------------------------------------

MLM = {"pairs": "none", "checkpoints__best": ""}
MODERN = {
    "model__position": "rotary",
    "model__norm": "pre",
    "model__first_norm": "false",
    "model__biases": "false",
    "model__gated": "true",
    "model__type_vocab": 0,
    "model__window": 3,
    "model__global_every": 2,
    "model__rotary_base_near": 50,
}
NEO = {
    "model__position": "rotary",
    "model__norm": "pre",
    "model__norm_kind": "rms",
    "model__embedding_norm": "false",
    "model__biases": "false",
    "model__gated": "true",
    "model__activation": "silu",
    "model__type_vocab": 0,
    "model__word_head": "matrix",
    "model__pooler_bias": "true",
}
EXPRESSED = {
    "bert": MLM,
    "roberta": MLM | {"model__first_position": 1, "model__type_vocab": 1},
    "roberta-prelayernorm": MLM | {"model__first_position": 1, "model__norm": "pre"},
    "distilbert": MLM | {"model__type_vocab": 0},
    "modernbert": MLM | MODERN,
    "electra": MLM | {"model__embedding": 24},
    "neobert": MLM | NEO,
}
INEXPRESSIBLE = {
    "model.first_position = 2": EXPRESSED["roberta"] | {"model__first_position": 2},
    "model.head_activation = relu": EXPRESSED["roberta"] | {"model__head_activation": "relu"},
    "model.causal = True": EXPRESSED["modernbert"] | {"model__causal": "true"},
    "model.global_every = 0": EXPRESSED["modernbert"] | {"model__global_every": 0},
    "model.first_norm = True": EXPRESSED["modernbert"] | {"model__first_norm": "true"},
    "model.position = relative": MLM | {"model__position": "relative"},
    "model.inner_norm = True": MLM | {"model__inner_norm": "true"},
    "model.norm_parameters = False": MLM | {"model__norm_parameters": "false"},
    "model.mlp_biases = False": MLM | {"model__mlp_biases": "false"},
    "model.attention_gate = True": MLM | {"model__attention_gate": "true"},
    "model.layer_weights = True": EXPRESSED["modernbert"] | {"model__layer_weights": "true"},
    "model.biases = False": MLM | {"model__biases": "false"},
    "model.pooling = mean": {"model__pooling": "mean"},
    "model.pooler = relu": {"model__pooler": "relu"},
    "model.embedding = 24": EXPRESSED["distilbert"] | {"model__embedding": 24},
    "model.embedding_norm = False": MLM | {"model__embedding_norm": "false"},
    "model.norm_kind = rms": MLM | {"model__norm_kind": "rms"},
    "model.word_head = matrix": MLM | {"model__word_head": "matrix"},
    "model.word_head = transform": EXPRESSED["neobert"] | {"model__word_head": "transform"},
    "model.rotary_base = 500": EXPRESSED["neobert"] | {"model__rotary_base": 500},
    "model.mlp = 44": EXPRESSED["neobert"] | {"model__mlp": 44},
    "model.pooler_bias = False": {"model__pooler_bias": "false"},
}


@pytest.mark.parametrize("name", EXPRESSED)
def test_a_model_is_exported_as_the_first_family_that_expresses_it(name):
    config = toy.config(**EXPRESSED[name])
    assert export.family_of(config, toy.SPECIAL).model_type == name
    obstacles = {n: export.obstacles(config, toy.SPECIAL, row) for n, row in table.TABLE.items()}
    free = [other for other, found in obstacles.items() if not found]
    assert free == [name, *(["electra"] if name == "bert" else [])]  # the others say why not


@pytest.mark.parametrize("said", INEXPRESSIBLE)
def test_what_no_family_expresses_is_refused_by_knob(said):
    with pytest.raises(ConfigError, match=f"cannot express {said}"):
        export.family_of(toy.config(**INEXPRESSIBLE[said]), toy.SPECIAL)


def test_heads_that_have_one_name_there_are_refused_together():
    config = toy.config(**EXPRESSED["modernbert"], model__pooler="transform")
    both = {name: knobs.Objective(1.0) for name in ("mlm", "span")}
    with pytest.raises(ConfigError, match="mlm and span, which share one name there"):
        export.family_of(dataclasses.replace(config, objectives=both), toy.SPECIAL)


# --- used -----------------------------------------------------------------------------------------


def test_a_head_over_labels_begins_as_the_mlm_head_where_it_is_built_like_it(monkeypatch, tmp_path):
    """As in transformers, where ModernBERT's classes call both `head`."""
    kinds = EXPRESSED["modernbert"] | {"model__pooler": "transform"}
    (tmp_path / "vocab.txt").write_text(
        "".join(f"{p}\n" for p in [*tokenizers.SPECIALS, *map(str, range(toy.VOCAB - 5))])
    )
    tokenizer = tokenizers.load(tmp_path / "vocab.txt")

    def params(config):
        tree = jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0)))
        count = iter(range(10_000))
        return jax.tree.map(lambda x: jnp.full(x.shape, float(next(count))), tree)

    before = toy.config(**kinds)
    run = runs.TrainedModel(tmp_path, before, tokenizer, tmp_path, params(before), 1, {})
    monkeypatch.setattr(runs, "open_run", lambda *_: run)
    config = dataclasses.replace(
        before,
        objectives={"classify": knobs.Objective(1.0, ("a", "b"))},
        init_from="run",
        init_fresh="^classify/",
    )
    fresh = params(config)
    found = initial.start_from(config, fresh, tokenizer)["classify"]
    for part in ("dense", "norm"):
        jax.tree.map(np.testing.assert_array_equal, found[part], run.params["mlm"][part])
    np.testing.assert_array_equal(found["logits"]["kernel"], fresh["classify"]["logits"]["kernel"])


@pytest.mark.slow
@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_folder_is_asked_and_its_sentences_embedded(family, tmp_path, capsys):
    run = opened(tmp_path / "m", family, "sequence_classification")
    (tmp_path / "m" / "1_Pooling").mkdir()
    (tmp_path / "m" / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "b.Pooling", "path": "1_Pooling"}]
    (tmp_path / "m" / "modules.json").write_text(json.dumps(modules))
    model = stream.Model(runs.open_run(str(tmp_path / "m")), Options())
    texts = ["w5 w6 w7", "w8"]
    (one, other) = stream.predict(model, "classify", texts)
    assert [*one["probabilities"]] == ["O", "B", "I"]
    assert one["probabilities"] != other["probabilities"]
    b = {key: value[:2, :5] for key, value in batch(family, "model").items()}
    b["tokens"] = np.array([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]], np.int32)
    b["segment_ids"] = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)
    encoder = Encoder(run.config.model, 20, pool=False)
    hidden = jax.jit(encoder.apply)({"params": run.params["encoder"]}, b).hidden
    for row, length, found in zip(
        hidden, (5, 3), stream.predict(model, "embed", texts), strict=True
    ):
        np.testing.assert_allclose(found["embedding"], row[:length].mean(0), atol=1e-5)
    pairs = ['{"text": "w5", "text_pair": "w6"}']  # the second text has no type of its own
    assert len(list(stream.predict(model, "classify", pairs))) == 1
