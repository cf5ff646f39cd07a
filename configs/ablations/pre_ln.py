"""LayerNorm before each block instead of after it.

    bert-jax train --config=configs/ablations/pre_ln.py --workdir=runs/pre_ln

pre_ln.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.model.norm = "pre"
    return config
