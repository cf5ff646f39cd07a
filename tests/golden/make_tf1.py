"""What TensorFlow reads of the checkpoint in tests/golden/tf1/: values.npz.

The checkpoint is a fine-tuned classifier as google's run_classifier.py leaves it, written by
`tf.compat.v1.train.Saver(sharded=True)`. Names, transposed kernels, optimizer slots and global_step
are google-research/bert's; the weights are those of huggingface/classifier_one_layer, so that
folder has the outputs. Two data files, because large models have several. values.npz leaves the
slots out.

Made on 2026-11-21 with Python 3.11, tensorflow-cpu 2.21.0, numpy 2.4.6. To make again, in an
environment that has these (the tests need none of them):

    python tests/golden/make_tf1.py
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "tf1"

if __name__ == "__main__":
    reader = tf.train.load_checkpoint(str(FOLDER / "model.ckpt-1234"))
    names = [name for name in reader.get_variable_to_shape_map() if "/adam_" not in name]
    np.savez_compressed(FOLDER / "values.npz", **{name: reader.get_tensor(name) for name in names})
