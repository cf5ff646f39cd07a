"""A masking rate that is drawn for each example: drawn_rate.py:LAW or drawn_rate.py:LAW,SIZE.

    bert-jax train --config=configs/ablations/drawn_rate.py:uniform --workdir=runs/uniform

LAW is a value of masking.draw: `uniform` from draw_low to draw_high, `cosine_low` with a mean of
36 %, `cosine_high` with 64 %, `beta` or `bimodal`. Rates are spread evenly over the stream of
examples. The head has a slot for every token of a row where the highest rate is 100 %, which costs
time and memory beside configs/pretrain.py: `bert-jax plan` says how much.
"""

from bert_jax.config import load_file


def get_config(arg="uniform"):
    law, _, size = arg.partition(",")
    config = load_file(f"../pretrain.py:{size or 'base'}", beside=__file__)
    config.masking.draw = law
    return config
