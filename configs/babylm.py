"""BERT on BabyLM's text: babylm.py:TRACK[,FOLDER[,SIZE]], of the track strict-small or strict.

    bert-jax train    --config=configs/babylm.py:strict-small,train_10M --workdir=runs/babylm
    bert-jax evaluate --model=runs/babylm --suite=babylm --source=evaluation_data/full_eval

FOLDER has the files of the corpus, .train or .txt. A file without blank lines is one document, of
which the validation split holds out all or nothing: `bert-jax prepare` says how much it has.
Checkpoints on the way are runs/babylm/checkpoints/STEP, to be scored on evaluation_data/fast_eval.

The rules, as babylm.github.io (its first page and guidelines, July 2026) and the README of
github.com/babylm/evaluation-pipeline-2025 at bf55c11 state them:

- strict-small has at most 10 million words of text, and strict 100 million: the organizers' or
  others. What else is learnt from text counts too; the vocabulary is trained on the same.
- At most 10 epochs (`epochs`; batches never begin an eleventh).
- Checkpoints by the words that are read, repeated ones counted: after each million up to ten, each
  ten millions up to 100, and of strict each hundred millions up to 1,000. `checkpoints.at_words`
  keeps them; the last of them is the last step. It counts words between spaces, hyphens and
  apostrophes, of which a text has more than the rules count: checkpoints are early by that share.
  A shorter text needs --config.checkpoints.at_words of its own, which may be empty.

The model is BERT's, so that `bert-jax export` makes what the organizers' pipeline takes. There is
no expected result and no time: neither the corpus nor the evaluation data could be had where this
was written. It was run on two files of made-up sentences with SIZE tiny, and nothing of it is
tuned. The organizers' GPT-2 of 2026 has 65.08 % on BLiMP as strict-small and 74.53 % as strict
(README of babylm-org/babylm-eval at 45fe2c1).
"""

from bert_jax.config import default
from bert_jax.config.knobs import SIZES
from bert_jax.errors import need, suggest

MILLION = 1_000_000
TO_100 = (*range(1, 10), *range(10, 100, 10))
TRACKS = {  # folder of the text, size of the model, pieces, millions of words at checkpoints
    "strict-small": ("train_10M", "medium", 16_000, TO_100),
    "strict": ("train_100M", "base", 32_000, (*TO_100, *range(100, 1_000, 100))),
}


def get_config(arg="strict-small"):
    track, path, size, rest = (*arg.split(",", 3), "", "", "")[:4]
    need(track in TRACKS, f"no track {track!r}", suggest(track, TRACKS))
    folder, usual, pieces, millions = TRACKS[track]
    size = size or usual
    need(size in SIZES, f"no size {size!r}", suggest(size, SIZES))
    need(not rest, f"no argument {rest!r} after the size", "TRACK,FOLDER,SIZE")
    config = default()
    config.corpus.source = "files"
    config.corpus.path = path or folder
    config.corpus.validation_fraction = 0.005
    config.tokenizer.vocab_size = pieces
    config.model.size = size
    config.model.init_stddev = SIZES[size][1] ** -0.5
    config.pairs = "none"
    config.epochs = 10
    config.batch_size = 128
    config.sequence_length = 256  # texts of entity tracking are longer than 128 tokens
    config.optim.learning_rate = 3e-4
    config.optim.warmup_fraction = 0.05
    config.checkpoints.every = 500
    config.checkpoints.at_words = tuple(MILLION * n for n in millions)
    config.evals.validation.every = 500
    return config
