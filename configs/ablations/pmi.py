"""PMI-Masking: collocations of the training text are masked as one, other words whole.

    bert-jax train --config=configs/ablations/pmi.py --workdir=runs/pmi

After Levine et al., 2021. pmi.py:SIZE takes another size. Time and cost are those of
configs/pretrain.py, plus ten minutes or so before the first update, once for each text, to find its
collocations; `bert-jax prepare` with this config finds them too. They are kept beside the prepared
text, in collocations/, with a list to read.
"""

from bert_jax.config import load_file


def get_config(size="base"):
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.unit = "pmi"
    return config
