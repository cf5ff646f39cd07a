"""Pre-training by a published recipe: preset.py:NAME or preset.py:NAME,SIZE.

    bert-jax train --config=configs/preset.py:google_2018 --workdir=runs/google_2018

NAME is one of google_2018, google_head, huggingface, roberta, wettig, mosaic, modernbert, neobert,
gpt_bert; SIZE is `base` by default. Text, saves and evaluations are those of pretrain.py. To see
what a recipe sets and from which source (docs/presets.md has what it does not reproduce):

    bert-jax doctor --preset-diff defaults roberta

At `base` and on that text each of them is meant for several accelerators. Knobs can be changed on
top of a recipe:

    --config.masking.rate=0.4
"""

from bert_jax.config import default, load_file


def get_config(arg="google_2018"):
    name, _, size = arg.partition(",")
    paper = load_file(f"pretrain.py:{size or 'base'}", beside=__file__)
    config = default(name)
    config.model.size = paper.model.size
    config.corpus = paper.corpus
    config.checkpoints = paper.checkpoints
    config.evals = paper.evals
    config.logging = paper.logging
    return config
