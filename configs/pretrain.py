"""BERT pre-training, masked language model and next sentence prediction, at any published size.

    bert-jax train --config=configs/pretrain.py:base --workdir=runs/base

Sizes: tiny, mini, small, medium, base, large. This is the paper's recipe at 128 tokens on
Wikipedia: a million updates of 256 examples. `base` has 110 M parameters and is meant for several
accelerators.

The text is Wikipedia's, as parquet files of the hub (11 GB for English; it was not read here, where
there is no network). Pin it, and prepare it once, before the accelerators wait:

    bert-jax prepare --config=configs/pretrain.py:base --config.corpus.revision=COMMIT

For books beside it, or any other text, put files in a folder (.txt, .jsonl or .parquet), or name
another data set of the hub:

    --config.corpus.source=files --config.corpus.path=FOLDER
    --config.corpus.path=OWNER/NAME:CONFIG --config.corpus.text_field=COLUMN
"""

from bert_jax.config import default


def get_config(size="base"):
    config = default()
    config.model.size = size
    config.corpus.source = "hub"
    config.corpus.path = "wikimedia/wikipedia:20231101.en"
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
