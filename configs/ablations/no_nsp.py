"""No next sentence prediction: full sentences in one segment (BERT table 5, RoBERTa table 2).

    bert-jax train --config=configs/ablations/no_nsp.py --workdir=runs/no_nsp

no_nsp.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.pairs = "none"
    return config
