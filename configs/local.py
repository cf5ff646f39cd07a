"""Pre-training on your own text, on one machine: local.py:PATH or local.py:PATH,SIZE; `mini` unless told.

bert-jax train --config=configs/local.py:my_texts/ --workdir=runs/local

PATH is a file, folder or glob of .txt, .jsonl or .parquet. On two CPU cores 3,000 updates of `mini` take about an hour.
"""

from bert_jax.config import default
from bert_jax.knobs import SIZES


def get_config(arg="texts"):
    path, _, size = arg.partition(",")
    config = default()
    config.corpus.source = "files"
    config.corpus.path = path
    config.tokenizer.vocab_size = 16_000
    config.model.size = size or "mini"
    # 0.02 suits a width of 1,000; narrower models leave the plateau of unigram guessing sooner with this.
    config.model.init_stddev = SIZES[config.model.size][1] ** -0.5
    config.steps = 3_000
    config.batch_size = 32
    config.sequence_length = 128
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 300
    config.checkpoints.every = 250
    config.evals.validation.every = 250
    return config
