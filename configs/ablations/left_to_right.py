"""Causal attention, without NSP: masked tokens are restored from their left context alone.

Near to the left-to-right row of BERT's table 5, which predicts every token and masks none.

    bert-jax train --config=configs/ablations/left_to_right.py --workdir=runs/left_to_right

left_to_right.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.model.causal = True
    config.pairs = "none"
    return config
