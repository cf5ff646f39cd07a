"""A masking rate that falls from 30 % to 15 % over training.

    bert-jax train --config=configs/ablations/rate_schedule.py --workdir=runs/rate_schedule

The rate is a traced number, so one compiled program serves the whole run. rate_schedule.py:SIZE
takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.rate = 0.3
    config.masking.schedule = "linear"
    config.masking.final_rate = 0.15
    return config
