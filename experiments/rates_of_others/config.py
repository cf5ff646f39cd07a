"""A RoBERTa with layer normalisation first, as in the published models, two layers of 128.

    bert-jax train --config=experiments/rates_of_others/config.py:0.4,8000 --workdir=runs/rate40

The argument is the masking rate and the size of the byte-level BPE. Text, rows and length are those
of configs/tiny.py; the network and its masks, [MASK] alone, are the preset's (`wettig`).
"""

from bert_jax.config import apply, load_file, put

# What a preset of 4,096 rows says of so small a model in so short a run does not hold.
OWN = (
    *("steps", "batch_size", "sequence_length"),
    *("optim.learning_rate", "optim.warmup_steps"),
    *("model.init_stddev", "model.dropout", "model.attention_dropout"),
)


def get_config(arg="0.4,8000"):
    """Return the config of a masking rate and a size of vocabulary."""
    rate, vocabulary = arg.split(",")
    tiny, config = (load_file("../../configs/tiny.py", beside=__file__) for _ in range(2))
    apply(config, "wettig")
    for path in OWN:
        section, _, knob = path.rpartition(".")
        put(config, path.split("."), getattr(getattr(tiny, section) if section else tiny, knob))
    config.objectives.nsp.weight = None  # RoBERTa has no pairs
    config.model.first_position = 1  # the padding token, which is token 0, has a position there
    config.tokenizer.kind = "bpe"
    config.tokenizer.vocab_size = int(vocabulary)
    config.masking.rate = float(rate)
    config.masking.rounding = "nearest"  # as the runs of results.csv were trained
    return config
