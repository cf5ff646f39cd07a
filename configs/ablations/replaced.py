"""Replaced token detection: tell for each token whether it is the original, as ELECTRA does.

    bert-jax train    --config=configs/ablations/replaced.py --workdir=runs/replaced
    bert-jax evaluate --model=runs/replaced --suite=pretrain
    bert-jax train    --config=configs/finetune.py:mrpc,init_from=runs/replaced --workdir=runs/mrpc

A generator, an encoder as deep but narrower over the same embeddings, fills masks with tokens drawn
from its softmax, and the encoder finds those that are not the original. Fine-tuning starts from the
encoder; `predict fill-mask` asks the generator.

replaced.py:SHARE or replaced.py:SHARE,SIZE sets the width of the generator as a share of the
encoder's: the paper has a third for base and a quarter for large, and a learning rate of 2e-4 for
both (--config.optim.learning_rate=2e-4). 0 is none, and random tokens take the place of masks.
Its small model has 12 layers of 256 over narrower embeddings: --config.model.layers=12
--config.model.hidden=256 --config.model.heads=4 --config.model.embedding=128. `bert-jax plan` says
what the second encoder costs; `bert-jax export` writes the encoder as `ElectraForPreTraining`, and
with --generator the generator as `ElectraForMaskedLM`.
"""

from bert_jax.config import load_file


def get_config(arg="0.3333"):
    share, _, size = arg.partition(",")
    config = load_file(f"../pretrain.py:{size or 'base'}", beside=__file__)
    config.pairs = "none"
    config.objectives.replaced = {"generator": float(share)}
    replace = (1.0, 0.0, 0.0) if float(share) else (0.0, 1.0, 0.0)
    config.masking.replace = config.evals.validation.replace = replace
    if not float(share):
        del config.objectives.mlm
    # The better the generator, the harder its tokens are to find: no loss says which step is best.
    config.checkpoints.best = ""
    return config
