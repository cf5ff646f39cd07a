"""BERT pre-training that uses the hardware: packed rows, large batches, fused attention.

    bert-jax train --config=configs/fast.py:base --workdir=runs/fast

A diff of configs/pretrain.py: no attention dropout, so that fused attention kernels can be used; no
pairs, and up to four documents or pieces of documents a row, which do not attend to each other;
4,096 rows an update with LAMB (You et al., 2020), whose learning rate falls linearly after a
warm-up. It reads as many rows in 62,500 updates as the paper's recipe in a million.
experiments/scale has what the compilers of eight H100 and of sixteen TPU v5e make of it, beside the
paper's recipe. One H200 has run updates of 512 rows (experiments/performance); no accelerator has
trained a whole run. `large` fits sixteen v5e with `--config.model.remat=full`.

    bert-jax plan --config=configs/fast.py:base --target=h100x8

An update takes about the same time with and without packing. Packing puts more text into it:

    python experiments/scale/loader.py --config=configs/fast.py:base --batches=2048 \\
      --config.corpus.source=docstrings --config.corpus.path= [--config.packing=1]

prints the share of tokens that are text: 97.7 % packed and 90.7 % unpacked. For 31 MB of books,
textbooks, articles and speeches it is 97.4 % and 84.9 %. Unpacked rows hold full sentences of one
or more documents, and end where the next sentence does not fit.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"pretrain.py:{size}", beside=__file__)
    config.model.attention_dropout = 0.0
    config.pairs = "none"
    config.packing = 4
    config.batch_size = 4_096
    config.steps = 62_500
    config.optim.name = "lamb"
    config.optim.schedule = "linear"
    config.optim.learning_rate = 3.5e-3
    config.optim.warmup_steps = 3_125
    config.checkpoints.every = 1_250
    config.evals.validation.every = 2_500
    config.evals.validation.batch_size = None  # rows a device as in training: 64 suit one device
    return config
