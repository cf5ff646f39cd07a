"""Static masks: ten copies of the corpus, each masked once (RoBERTa table 1).

    bert-jax train --config=configs/ablations/static_masks.py --workdir=runs/static_masks

The original BERT's data files are made this way. static_masks.py:SIZE takes another size. Time and
cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.dupe_factor = 10
    return config
