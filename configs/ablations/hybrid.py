"""Masked and causal examples in one batch: a model that fills masks and goes on with texts.

    bert-jax train    --config=configs/ablations/hybrid.py --workdir=runs/hybrid
    bert-jax evaluate --model=runs/hybrid --suite=nelbo
    echo "Once upon a time" | bert-jax predict generate --model=runs/hybrid

hybrid.py:SHARE or hybrid.py:SHARE,SIZE sets the share of causal examples, which is also that of
their loss. A masked token is predicted from the place before it, as GPT-BERT does, so that both
kinds of examples ask the same of a place. Costs what configs/pretrain.py costs, and logits at every
token in place of one in seven.
"""

from bert_jax.config import load_file


def get_config(arg="0.5"):
    share, _, size = arg.partition(",")
    config = load_file(f"../pretrain.py:{size or 'base'}", beside=__file__)
    config.pairs = "none"
    config.objectives.hybrid = {"share": float(share), "shift": True}
    return config
