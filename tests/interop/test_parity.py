"""Our models against transformers' and NeoBERT's: hidden states, every head, gradients.

`experiments/parity/check.py` does the same with published weights.
"""

import jax
import numpy as np
import pytest

from bert_jax.interop import families as table
from bert_jax.interop import huggingface, runs
from bert_jax.objectives import network
from tests import families
from tests.families import CASES
from tests.marks import mark_slow
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
)

MODELS = GOLDEN / "huggingface"
QUICK_HEADS = (  # the others are a part of these, or another size
    *("model", "pretraining", "causal_lm", "sequence_classification", "token_classification"),
    *("multiple_choice", "question_answering"),
)
QUICK = [
    *(("modernbert", "sequence_classification"), ("roberta", "masked_lm")),
    *(("electra", "pretraining"), ("neobert", "masked_lm")),
]


@pytest.mark.parametrize("name", mark_slow(HEADS, QUICK_HEADS))
def test_bert_heads_give_what_transformers_gives(name):
    found = huggingface.read_model(MODELS / name)
    golden = np.load(MODELS / name / "outputs.npz")
    assert tuple(found.config.objectives) == tuple(HEADS[name])
    b = batch_of(golden["input_ids"], golden["token_type_ids"], golden["attention_mask"])
    inside = look_inside(found, b)
    for layer, theirs in zip(inside.hidden, golden["hidden_states"], strict=True):
        close(layer, theirs.reshape(layer.shape), f"{name} hidden states")
    if name == "model":
        close(encode(found, b, pool=True).pooled[:, 0], golden["pooler_output"], "pooled")
        close(inside.attention, golden["attentions"], "attention")
        return
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


@pytest.mark.parametrize(("family", "head"), mark_slow(CASES, QUICK))
def test_family_outputs_and_gradients_are_theirs(family, head, tmp_path):
    """To 1.1e-5: both sides round to float32, ModernBERT's gradients in jax 0.12 to 1.001e-5."""
    far = differences(tmp_path, family, head)
    assert {name: value for name, value in far.items() if value > 1.1e-5} == {}


@pytest.mark.parametrize("family", mark_slow(families.UNTIED, ["modernbert"]))
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
    net = network.build_network(run.config, 20)
    found = jax.jit(net.apply)({"params": run.params}, family_batch(family, "masked_lm"))["mlm"]
    real = families.batch(family, "masked_lm")["attention_mask"] > 0
    assert distance(found[real][:, :20], expected[real]) < 1e-5
