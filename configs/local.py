"""Pre-training on your own text, on one machine: local.py:PATH or local.py:PATH,SIZE.

    bert-jax train --config=configs/local.py:my_texts/ --workdir=runs/local

PATH is a file, folder or glob of .txt, .jsonl or .parquet. SIZE is `mini` by default; choose it
here, because the scale of the initial weights follows from the model's width.
experiments/pretrain_mini says what such a run takes and reaches.
"""

from bert_jax.config import default
from bert_jax.config.knobs import SIZES


def get_config(arg="my_texts"):
    path, _, size = arg.rpartition(",")
    if size not in SIZES:
        path, size = arg, "mini"
    config = default()
    config.corpus.source = "files"
    config.corpus.path = path
    config.corpus.validation_fraction = 0.01
    config.tokenizer.vocab_size = 16_000
    config.model.size = size
    # 0.02 suits a width of 1,000; with 1 / sqrt(width), narrower models leave the plateau of
    # unigram guessing sooner.
    config.model.init_stddev = SIZES[config.model.size][1] ** -0.5
    config.model.dropout = 0.0  # the text is seen about once
    config.model.attention_dropout = 0.0
    config.objectives.nsp.weight = 0.3  # at full weight NSP is learnt first and words much later
    config.steps = 2_000
    config.batch_size = 32
    config.sequence_length = 128
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 200
    config.checkpoints.every = 500
    config.evals.validation.every = 500
    return config
