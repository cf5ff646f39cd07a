"""Masks that prefer rare tokens, or frequent ones: weighted_masks.py:POWER or :POWER,SIZE.

    bert-jax train --config=configs/ablations/weighted_masks.py:-0.5 --workdir=runs/weighted

A token weighs its share of the training text to the power: below 0 rare tokens are selected more
often, and 0 selects all alike, as configs/pretrain.py does. The share that is selected, time and
cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(arg="-0.5"):
    power, _, size = arg.partition(",")
    config = load_file(f"../pretrain.py:{size or 'base'}", beside=__file__)
    config.masking.weights = "frequency"
    config.masking.weights_power = float(power)
    return config
