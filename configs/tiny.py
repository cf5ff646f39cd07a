"""The run of `make demo`: a two-layer BERT on the English of Python's docstrings, with nothing to download.

bert-jax train --config=configs/tiny.py --workdir=runs/demo
"""

from bert_jax.config import default


def get_config():
    config = default()
    config.model.size = "tiny"
    config.tokenizer.vocab_size = 8_000
    config.sequence_length = 64
    config.batch_size = 32
    config.steps = 1_000
    config.optim.learning_rate = 1e-3
    config.optim.warmup_steps = 100
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.evals.validation.every = 500
    config.checkpoints.every = 500
    return config
