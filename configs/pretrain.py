"""BERT pre-training, masked language model and next sentence prediction, at any published size.

    bert-jax train --config=configs/pretrain.py:base --workdir=runs/base

Sizes: tiny, mini, small, medium, base, large. This is the paper's recipe at 128 tokens on
Wikipedia: a million updates of 256 examples. `base` has 110 M parameters and is meant for several
accelerators. Prepare the TFDS data set beforehand:

    tfds.builder('wikipedia/20230601.en').download_and_prepare(file_format='array_record')

For local text:

    --config.corpus.source=files --config.corpus.path=FOLDER
"""

from bert_jax.config import default


def get_config(size="base"):
    config = default()
    config.model.size = size
    config.corpus.source = "tfds"
    config.corpus.path = "wikipedia/20230601.en"
    config.steps = 1_000_000
    config.batch_size = 256
    config.sequence_length = 128
    config.optim.name = "adam2018"
    config.optim.schedule = "linear2018"
    config.optim.learning_rate = 1e-4
    config.optim.warmup_steps = 10_000
    config.checkpoints.every = 5_000
    config.evals.validation.every = 10_000
    config.logging.every = 100
    return config
