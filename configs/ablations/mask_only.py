"""Every selected token becomes [MASK]: no random tokens, none kept (BERT table 8, first ablation).

    bert-jax train --config=configs/ablations/mask_only.py --workdir=runs/mask_only

mask_only.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.replace = (1.0, 0.0, 0.0)
    return config
