"""Sentence order prediction in place of NSP (ALBERT).

    bert-jax train --config=configs/ablations/sop.py --workdir=runs/sop

sop.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.pairs = "sop"
    return config
