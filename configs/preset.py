"""Pre-training by a published recipe: preset.py:NAME or preset.py:NAME,SIZE.

    bert-jax train --config=configs/preset.py:google_2018 --workdir=runs/google_2018

NAME is one of google_2018, google_head, huggingface, roberta, wettig, mosaic, modernbert, neobert,
gpt_bert; SIZE is `base` by default. The text, and everything a recipe leaves open, is as in
pretrain.py. To see what a recipe sets, from which source, and what it does not reproduce:

    bert-jax doctor --preset-diff roberta defaults

At `base` and on that text each of them is meant for several accelerators. Knobs can be changed on
top of a recipe:

    --config.masking.rate=0.4
"""

from bert_jax.config import apply, load_file


def get_config(arg="google_2018"):
    name, _, size = arg.partition(",")
    config = load_file(f"pretrain.py:{size}" if size else "pretrain.py", beside=__file__)
    apply(config, name)
    return config
