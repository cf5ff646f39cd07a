"""Fine-tuning on a task: finetune.py:TASK,init_from=DIR, or finetune.py:KIND,init_from=DIR for data
of your own.

    bert-jax train --config=configs/finetune.py:sst2,init_from=runs/base --workdir=runs/sst2 \\
      --config.task.source='files:glue_data/SST-2/{split}.tsv'

TASK is a row of bert_jax/data/tasks.py: cola sst2 mrpc stsb qqp mnli qnli rte wnli, squad squad2,
wnut17 conll2003 ud_ewt, swag copa, and more; a SQuAD file of yours is squad or squad2. KIND is
classify, regress, tag, span or choice, and `task.text`, `task.text_pair` and `task.label` name the
columns. One file without {split} is split in two: a fifth, by hash, is held out; two are
files:train=FILE,validation=FILE. --config.task.columns=text,label names the columns of a file
without a header, --config.task.options=a,b,c those of options. A file's format goes by its name
(.tsv .csv .jsonl .json .conll .iob2 .conllu, each also .gz or .zst), else by its first lines.
--config.task.extra_columns=true leaves out columns beyond those that are named; questions whose
answer is not where the file says are left out of training; both are counted. DIR is a run, or a
model of others. Any knob may follow as NAME=VALUE:
finetune.py:mrpc,init_from=runs/base,seed=1,epochs=4

The recipe is the paper's: batches of 32, 3 epochs, a warm-up over a tenth of them, dropout 0.1; its
grid is batches of 16 and 32, rates of 5e-5, 3e-5 and 2e-5, 2 to 4 epochs. The best epoch on
development data is kept. Batches are of any rows, as there; --config.task.group=length puts rows of
about the same length together, which leaves little padding and compiles more lengths. A loss over
words then weighs those of short texts more: it is a batch's mean. Others:
--config.optim.layer_decay=0.8, --config.init_fresh_layers=2, --config.checkpoints.patience=2, and
features without fine-tuning: --config.optim.freeze=^encoder/ --config.model.features=4
--config.optim.learning_rate=1e-3
--config.model.dropout=0 --config.model.attention_dropout=0 (dropout would change the features from
step to step).
"""

from bert_jax.config import override
from bert_jax.errors import ConfigError
from bert_jax.recipes import finetuning


def get_config(arg="sst2"):
    name, *changes = arg.split(",")
    if wrong := [change for change in changes if "=" not in change]:
        raise ConfigError(
            f"{wrong[0]!r} sets no knob",
            "NAME=VALUE, as in finetune.py:sst2,init_from=DIR,epochs=2",
        )
    asked = dict(change.partition("=")[::2] for change in changes)
    config = finetuning(name, asked.get("init_from", ""))
    for path, text in asked.items():
        override(config, path, text)
    return config
