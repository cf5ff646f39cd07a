"""Rotary positions, pre-LN and GeGLU: a later encoder with BERT's objectives.

    bert-jax train --config=configs/ablations/modern.py --workdir=runs/modern

modern.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.model.position = "rotary"
    config.model.norm = "pre"
    config.model.gated = True
    return config
