"""Masked diffusion: rates drawn from 0 to 1, and a loss that bounds the likelihood of the text.

    bert-jax train    --config=configs/ablations/diffusion.py --workdir=runs/diffusion
    bert-jax evaluate --model=runs/diffusion --suite=nelbo
    echo "Once upon a time" | bert-jax predict generate --model=runs/diffusion --order=random

diffusion.py:GAMMA or diffusion.py:GAMMA,SIZE sets the power of the weights: 1 is the bound, and 0
weighs all predictions alike. `--suite=nelbo` gives every model over tokens that bound, or its exact
likelihood where it reads from left to right. Every token of a row has a slot of the head, which
costs time and memory beside configs/pretrain.py: `bert-jax plan` says how much.
"""

from bert_jax.config import load_file


def get_config(arg="1.0"):
    gamma, _, size = arg.partition(",")
    config = load_file(f"../pretrain.py:{size or 'base'}", beside=__file__)
    config.pairs = "none"
    config.masking.draw = "uniform"
    config.masking.replace = (1.0, 0.0, 0.0)
    config.objectives.diffusion = {"gamma": float(gamma)}
    return config
