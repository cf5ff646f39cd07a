"""A left-to-right model without masking and without NSP (BERT table 5, third row).

    bert-jax train --config=configs/ablations/left_to_right.py --workdir=runs/left_to_right
    echo "Once upon a time" | bert-jax predict generate --model=runs/left_to_right

Each token is predicted from the tokens before it. left_to_right.py:SIZE takes another size. Costs
what configs/pretrain.py costs, and logits at every token in place of one in seven.
"""

from bert_jax.config import load_file, put


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    put(config, ["objectives", "causal_lm", "weight"], 1.0)
    config.model.causal = True
    config.pairs = "none"
    config.checkpoints.best = "causal_lm_loss"
    return config
