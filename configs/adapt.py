"""Continued pre-training of a model on your own text: adapt.py:TEXT,init_from=MODEL.

    bert-jax train --config=configs/adapt.py:my_texts,init_from=runs/demo --workdir=runs/adapted

TEXT is a file, folder or glob of .txt, .jsonl or .parquet. MODEL is a run, a Hugging Face folder
(BERT, RoBERTa, ModernBERT, ...) or a name on the hub. Shape, dropout and vocabulary are the
model's. Any knob may follow as NAME=VALUE:

    adapt.py:my_texts,init_from=runs/demo,epochs=10,optim.learning_rate=5e-4

The recipe: MLM at 15 %, no pairs, 3 epochs of 32 rows of 128 tokens, 5e-5 at the peak after a
warm-up over a tenth of the updates. A few megabytes of text want more epochs, small models such as
runs/demo a higher rate. A head that the model lacks, as MLM's of a sentence model or classifier,
starts fresh, and the log names it; heads that are not trained here are left out. So the result
fills masks, and can be fine-tuned; vectors of sentences are not trained.

To compare both on text that neither has read (a model that has the head of MLM), and to export:

    bert-jax evaluate --model=runs/demo    --suite=cross_rate --source=other.txt
    bert-jax evaluate --model=runs/adapted --suite=cross_rate --source=other.txt
    bert-jax export   --model=runs/adapted --output=adapted      # AutoModelForMaskedLM reads it
"""

from bert_jax.config import overrides
from bert_jax.errors import ConfigError
from bert_jax.recipes import adapting, split_argument

EXAMPLE = "adapt.py:my_texts,init_from=runs/demo"


def get_config(arg=""):
    text, knobs = split_argument(arg, f"{EXAMPLE},epochs=2")
    if not text or not knobs.get("init_from"):
        missing = "model to start from" if text else "text"
        raise ConfigError(f"adapt.py has no {missing}", f"name both, as in {EXAMPLE}")
    config = adapting(text, knobs["init_from"])
    overrides(config, knobs.items())
    return config
