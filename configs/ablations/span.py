"""Span masking: runs of whole words, lengths from the clipped geometric of SpanBERT.

    bert-jax train --config=configs/ablations/span.py --workdir=runs/span

span.py:SIZE takes another size. Time and cost are those of configs/pretrain.py.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.unit = "span"
    return config
