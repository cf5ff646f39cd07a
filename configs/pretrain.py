"""BERT pre-training, masked language model and next sentence prediction, at any published size.

    bert-jax train --config=configs/pretrain.py:base --workdir=runs/base

Sizes: tiny, mini, small, medium, base, large. This is the paper's recipe at 128 tokens on Wikipedia
and books: a million updates of 256 examples. `base` has 110 M parameters and is meant for several
accelerators.

The text is Wikipedia's and that of PG-19, books from before 1919, as parquet files of the hub: by
their pages 20 and 11 GB. None of it was read here, where there is no network: the names of both
datasets, their split `train` and their column `text` are assumed. Pin both, and prepare them once,
before the accelerators wait:

    bert-jax prepare --config=configs/pretrain.py:base --config.corpus.revision=COMMIT,COMMIT

Wikipedia alone; one other dataset of the hub; files in a folder (.txt, .jsonl or .parquet):

    --config.corpus.path=wikimedia/wikipedia:20231101.en
    --config.corpus.path=OWNER/NAME:FOLDER --config.corpus.text_field=COLUMN
    --config.corpus.source=files --config.corpus.path=FOLDER

The paper's own books, BookCorpus, are on the hub with a sentence a row and no mark where a book
ends: without documents there are no pairs to predict.
"""

from bert_jax.config import default


def get_config(size="base"):
    config = default()
    config.model.size = size
    config.corpus.source = "hub"
    config.corpus.path = "wikimedia/wikipedia:20231101.en,emozilla/pg19"
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
