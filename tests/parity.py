"""Our models next to golden outputs of transformers: how both are computed and compared.

`golden/huggingface` holds small BERTs, and `golden/families` small models of other families.
"""

import functools
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from bert_jax import objectives
from bert_jax.interop import families as table
from bert_jax.interop import huggingface, parameter_names, runs
from bert_jax.models.encoder import Encoder, compute_layers
from bert_jax.objectives import network
from tests import families

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
    worst = distance(ours, theirs, max(1.0, np.abs(theirs).max()))
    assert worst <= 1e-5, f"{what}: {worst:.1e}"


def read_parameters(path: Path | str, **settings: Any) -> dict[str, np.ndarray]:
    """The parameters of a model by our names, as commands open it."""
    params = flatten_dict(runs.open_run(str(path), **settings).params, sep="/")
    return {name: np.asarray(value) for name, value in params.items()}


def check_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Compare names, dtypes, shapes and bits."""
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert (value.dtype, value.shape) == (theirs[name].dtype, theirs[name].shape), name
        assert value.tobytes() == theirs[name].tobytes(), name


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
    read = functools.partial(compute_layers, found.config.model, vocabulary(found))
    return jax.jit(read)(found.params["encoder"], batch)


def vocabulary(found) -> int:
    return found.vocab_size if isinstance(found, huggingface.Foreign) else found.tokenizer.size


def outputs(found, batch):
    size = vocabulary(found)
    model = network.build_network(found.config, size)
    heads = jax.jit(model.apply)({"params": found.params}, batch)
    return {
        name: value[..., :size] if name in ("mlm", "causal_lm") else value
        for name, value in heads.items()
    }


def gradients() -> tuple[float, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Loss and gradients of MLM + NSP without dropout by every parameter, and torch's loss and
    gradients.
    """
    found = huggingface.read_model(GOLDEN / "huggingface" / "pretraining")
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
    model = network.build_network(found.config, found.vocab_size, train=False)

    def loss(params):
        heads = network.compute_outputs(model, params, b)
        parts = [
            objectives.TABLE[name].loss(heads[name], b)[f"{name}_loss"] for name in ("mlm", "nsp")
        ]
        return sum(total / count for total, count in parts)

    value, gradient = jax.jit(jax.value_and_grad(loss))(found.params)
    ours = parameter_names.to_theirs(
        flatten_dict(jax.tree.map(np.asarray, gradient), sep="/"),
        table.TABLE["bert"].names,
        found.vocab_size,
    )
    return (
        float(value),
        ours,
        {name: golden[name] for name in set(golden) - {"labels", "next_sentence_label"}},
    )


# --- other families -----------------------------------------------------------------------------


def distance(ours: Any, theirs: np.ndarray, largest: float = 0.0) -> float:
    """The largest difference, by the largest reference value."""
    assert np.shape(ours) == theirs.shape
    return float(np.abs(np.asarray(ours) - theirs).max() / (largest or np.abs(theirs).max()))


def family_batch(family: str, head: str) -> dict[str, np.ndarray]:
    """Our batch of the texts that the golden script gave to transformers."""
    given = families.batch(family, head)
    ids = given["input_ids"]
    types = given.get("token_type_ids", np.zeros_like(ids))
    return batch_of(ids, types, given["attention_mask"])


def differences(path: Path, family: str, head: str) -> dict[str, float]:
    """By what outputs and gradients differ from transformers', relative to the largest of each.

    Padding positions are read by nobody, and left out; the gradient of a key's bias cancels, and
    is held to that of the key's weights. That of a norm's scale in one layer may nearly cancel, and
    is held to the largest of that norm in any layer (ModernBERT's layers.2.mlp_norm is nine times
    smaller than another layer's, and 1.6e-5 off by rounding on an EPYC, not on a Xeon).
    """
    found = huggingface.read_model(families.folder(path, family, head))
    golden, b = families.outputs(family, head), family_batch(family, head)
    mask = families.batch(family, head)["attention_mask"]
    gradients, ours = compute_outputs(found, family, head, b)
    far = {}
    for name, value in ours.items():
        real = mask > 0 if value.shape[: mask.ndim] == mask.shape else ...
        if name == "hidden_states":
            layers = enumerate(zip(value, golden[name], strict=True))
            far |= {f"{name} {i}": distance(x[mask > 0], y[mask > 0]) for i, (x, y) in layers}
        else:
            far[name] = distance(value[real], golden[name][real])
    flat = {name: np.asarray(x) for name, x in flatten_dict(gradients, sep="/").items()}
    assert ("encoder/layer_0/attention_norm/scale" in flat) == found.config.model.first_norm
    mine = parameter_names.to_theirs(
        flat, table.TABLE[family].name_modules(found.config.objectives), 20
    )
    prefix = table.TABLE[family].prefix if head == "model" else ""  # transformers leaves it out
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


def compute_outputs(
    found: huggingface.Foreign, family: str, head: str, b: dict
) -> tuple[Any, dict]:
    """Gradients of the weighted sum of all outputs, and the outputs by transformers' names."""
    cfg = found.config.model
    golden, ours = families.outputs(family, head), families.HEADS[head]
    mask = families.batch(family, head)["attention_mask"]
    net = network.Network(cfg, 20, ((ours, 3),) if ours else ())
    pool = "pooler" in found.params["encoder"]

    def compute(params):
        states = {}
        if head == "model":
            encoded = Encoder(cfg, 20, pool=pool).apply({"params": params["encoder"]}, b)
            outputs = {"last_hidden_state": encoded.hidden}
            outputs |= {"pooler_output": encoded.pooled[:, 0]} if pool else {}
            states = {"hidden_states": compute_layers(cfg, 20, params["encoder"], b).hidden}
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
