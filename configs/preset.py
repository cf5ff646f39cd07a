"""Pre-training by a published recipe: preset.py:NAME or preset.py:NAME,SIZE; `base` unless told.

    bert-jax train --config=configs/preset.py:google_2018 --workdir=runs/google_2018

NAME is one of google_2018, google_head, huggingface, roberta, wettig, mosaic. The text and all a
recipe leaves open are those of pretrain.py. What a recipe sets, from where, and what it does not
reproduce:

    bert-jax doctor --preset-diff roberta defaults

At `base` and on Wikipedia each of them is meant for several accelerators. A changed knob goes on
top:
--config.masking.rate=0.4
"""

from bert_jax.config import apply, load_file


def get_config(arg="google_2018"):
    name, _, size = arg.partition(",")
    config = load_file(f"pretrain.py:{size}" if size else "pretrain.py", beside=__file__)
    apply(config, name)
    return config
