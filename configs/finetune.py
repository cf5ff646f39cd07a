"""Fine-tuning on a task: finetune.py:TASK,init_from=DIR, or finetune.py:KIND,init_from=DIR.

    bert-jax train --config=configs/finetune.py:sst2,init_from=runs/base --workdir=runs/sst2 \\
      --config.task.source='files:glue_data/SST-2/{split}.tsv'

DIR is a run, or a checkpoint in another format. Any knob may follow as NAME=VALUE:

    finetune.py:mrpc,init_from=runs/base,seed=1,epochs=4

TASK is a row of bert_jax/data/tasks.py: cola sst2 mrpc stsb qqp mnli qnli rte wnli, squad squad2,
wnut17 conll2003 ud_ewt, swag copa, and more; a SQuAD file of yours is squad or squad2.

KIND is for other data of your own: classify, regress, tag, span or choice; `task.text`,
`task.text_pair` and `task.label` then name the columns.

Files. One file without {split} is split in two: a fifth of its rows, chosen by hash, is held out.
Two files are files:train=FILE,validation=FILE. --config.task.columns=text,label names the columns
of a file without a header, --config.task.options=a,b,c the columns that hold the options. The
format follows from a file's name (.tsv .csv .jsonl .json .conll .iob2 .conllu, each also .gz or
.zst, and .parquet), or --config.task.format=FORMAT says it. A row that cannot be read is an error
that names its line. Questions whose answer is not where the file says it is are left out of
training, and counted.

The recipe is the paper's: batches of 32, 3 epochs, a warm-up over a tenth of the updates, dropout
0.1. The paper's grid is batches of 16 and 32, learning rates of 5e-5, 3e-5 and 2e-5, and 2 to 4
epochs. The epoch with the best score on validation data is kept.

Batches are of any rows, as in the paper. --config.task.group=length puts rows of about the same
length into one batch, which needs little padding and compiles more lengths. A loss over words then
gives words of short texts more weight, because it is the mean of a batch. Where lengths are skewed,
grouping raises the share of real tokens from 33 % to 77 %, and an epoch without it takes 2.66 times
as long (`experiments/performance/bench.py padding --rounds=5`, 2 cores, quartiles 2.56 to 2.70).

More options:

    --config.optim.layer_decay=0.8
    --config.init_fresh_layers=2
    --config.checkpoints.patience=2

Features without fine-tuning (no dropout, which would change the features from step to step):

    --config.optim.freeze=^encoder/ --config.model.features=4 \\
    --config.optim.learning_rate=1e-3 \\
    --config.model.dropout=0 --config.model.attention_dropout=0
"""

from bert_jax.config import overrides
from bert_jax.recipes import finetuning, split_argument


def get_config(arg="sst2"):
    name, knobs = split_argument(arg, "finetune.py:sst2,init_from=DIR,epochs=2")
    config = finetuning(name, knobs.get("init_from", ""))
    overrides(config, knobs.items())
    return config
