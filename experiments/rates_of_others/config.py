"""A RoBERTa with layer normalisation first, as in the published models, two layers of 128.

    bert-jax train --config=experiments/rates_of_others/config.py:0.4,8000 --workdir=runs/rate40

The argument is the masking rate and the size of the byte-level BPE. Text and length are those of
configs/tiny.py; the network and its masks, [MASK] alone, are the preset's (`wettig`).
"""

from bert_jax.config import default, load_file

# The sections of configs/tiny.py, and what a preset of 4,096 rows does not say of so small a model.
SECTIONS = ("corpus", "checkpoints", "evals", "sequence_length")
MODEL = ("size", "init_stddev", "dropout", "attention_dropout")
OPTIM = ("learning_rate", "warmup_steps")


def get_config(arg="0.4,8000"):
    """Return the config of a masking rate and a size of vocabulary."""
    rate, vocabulary = arg.split(",")
    tiny = load_file("../../configs/tiny.py", beside=__file__)
    config = default("wettig")
    for name in SECTIONS:
        config[name] = tiny[name]
    for name in MODEL:
        config.model[name] = tiny.model[name]
    for name in OPTIM:
        config.optim[name] = tiny.optim[name]
    config.steps, config.batch_size = 2_800, 64
    config.model.first_position = 1  # the padding token, which is token 0, has a position there
    config.tokenizer.kind = "bpe"
    config.tokenizer.vocab_size = int(vocabulary)
    config.masking.rate = float(rate)
    config.masking.rounding = "nearest"  # as the runs of results.csv were trained
    return config
