"""A checkpoint of a fine-tuned classifier as google's run_classifier.py leaves it:
tests/golden/tf1/.

Names, transposed kernels, optimizer slots and global_step are google-research/bert's; the weights
are those of huggingface/classifier_one_layer, so that folder has the outputs. Two data files,
because large models have several. values.npz is what TensorFlow reads back, less the slots.

Made on 2026-11-21 with Python 3.11, tensorflow-cpu 2.21.0, numpy 2.4.6, safetensors 0.8.0. To make
again, after make_huggingface.py, in an environment that has these (the tests need none of them):

    python tests/golden/make_tf1.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file

HERE = Path(__file__).parent
SOURCE, TARGET = HERE / "huggingface" / "classifier_one_layer", HERE / "tf1"
CONFIG = (  # what bert_config.json has
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob"),
    *("max_position_embeddings", "type_vocab_size", "initializer_range"),
)
RENAMES = (  # in this order
    (".embeddings.weight", "_embeddings"),
    ("_embeddings.weight", "_embeddings"),
    ("classifier.weight", "output_weights"),
    ("classifier.bias", "output_bias"),
    ("LayerNorm.weight", "LayerNorm.gamma"),
    ("LayerNorm.bias", "LayerNorm.beta"),
    (".weight", ".kernel"),
    ("layer.0", "layer_0"),
    (".", "/"),
)


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    generator = np.random.default_rng(0)
    values: dict[str, np.ndarray] = {"global_step": np.asarray(1234, np.int64)}
    for theirs, array in load_file(SOURCE / "model.safetensors").items():
        name = theirs
        for old, new in RENAMES:
            name = name.replace(old, new)
        values[name] = array.T if name.endswith("/kernel") else array
        for slot in ("adam_m", "adam_v"):
            values[f"{name}/{slot}"] = generator.random(values[name].shape, np.float32)
    prefix = str(TARGET / "model.ckpt-1234")
    save(prefix, values)
    reader = tf.train.load_checkpoint(prefix)
    kept = {name: reader.get_tensor(name) for name in values if "/adam_" not in name}
    np.savez_compressed(TARGET / "values.npz", **kept)
    config = json.loads((SOURCE / "config.json").read_text())
    stated = json.dumps({key: config[key] for key in CONFIG}, indent=2)
    (TARGET / "bert_config.json").write_text(f"{stated}\n")
    (TARGET / "checkpoint").unlink()  # names the folder of this machine


def save(prefix: str, values: dict[str, np.ndarray]) -> None:
    """A sharded Saver writes a data file for each device."""
    with tf.Graph().as_default():
        for place, (name, value) in enumerate(sorted(values.items())):
            with tf.device(f"/cpu:{place % 2}"):
                tf.compat.v1.get_variable(name, initializer=value)
        two = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
        with tf.compat.v1.Session(config=two) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver(sharded=True).save(session, prefix, write_meta_graph=False)


if __name__ == "__main__":
    main()
