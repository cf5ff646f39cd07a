"""Another masking rate than 15 %: masking_rate.py:RATE or masking_rate.py:RATE,SIZE.

    bert-jax train --config=configs/ablations/masking_rate.py:0.4 --workdir=runs/rate40

The number of prediction slots follows from the rate, so it never caps what is predicted. Time and
cost are those of configs/pretrain.py, plus the larger MLM head.
"""

from bert_jax.config import load_file


def get_config(arg="0.4"):
    rate, _, size = arg.partition(",")
    config = load_file(f"../pretrain.py:{size or 'base'}", beside=__file__)
    config.masking.rate = float(rate)
    return config
