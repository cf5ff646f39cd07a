"""Whole-word masking: all pieces of a word are selected together.

    bert-jax train --config=configs/ablations/whole_word.py --workdir=runs/whole_word

whole_word.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.unit = "word"
    return config
