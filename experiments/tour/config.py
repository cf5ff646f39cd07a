"""The tiny models of the walk, each trained by the ordinary loop in a few seconds: config.py:NAME.

    bert-jax train --config=experiments/tour/config.py:poem --workdir=runs/poem

NAME is one of MODELS. They have two layers of 64, a vocabulary of whole words, no dropout unless
a function sets it, and no held-out data: the stops test them on texts of their own.
"""

from pathlib import Path

from bert_jax.config import default

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
COMPLAINTS = HERE.parent / "complaints" / "complaints.tsv"


def get_config(name="poem"):
    """Build the config of one model: what all share, then its own settings."""
    config = default()
    config.model.size = "tiny"
    config.model.hidden = 64
    config.model.max_positions = 64
    config.model.init_stddev = 0.125  # 1 / sqrt(64): so small a model needs more than 0.02
    config.model.dropout = config.model.attention_dropout = 0.0
    config.tokenizer.path = str(DATA / "vocab.txt")
    config.pairs = "none"
    config.sequence_length = 48
    config.optim.learning_rate = 3e-3
    config.optim.warmup_steps = 10
    config.evals = {}
    config.checkpoints.best = ""
    config.logging.every = 50
    config.logging.trackers = ()
    MODELS[name](config)
    return config


def text(config, name):
    """Train on all of a text that has a sentence on each line."""
    config.corpus.source = "files"
    config.corpus.path = str(DATA / name)
    config.corpus.sentences = "lines"
    config.corpus.validation_fraction = 0.0
    config.corpus.workers = 1


def poem(config):
    """Set up a left-to-right model: each token from those before it."""
    text(config, "poem.txt")
    config.objectives = {"causal_lm": {"weight": 1.0}}
    config.model.causal = True
    config.batch_size = 4
    config.steps = 60
    config.logging.every = 5


def bert(config):
    """Set up BERT's objective on four short poems: 15 % of the words of one are masked."""
    text(config, "verses.txt")
    config.sequence_length = 39  # a poem a row: with one line more none would fit
    config.objectives = {"mlm": {"weight": 1.0}}
    config.masking.replace = (1.0, 0.0, 0.0)
    config.masking.rounding = "nearest"  # as many masks in every copy of a poem
    config.batch_size = 16
    config.steps = 300


def diffusion(config):
    """Set up masked diffusion on the same poems: any share is masked, up to all."""
    bert(config)
    config.objectives = {"diffusion": {"weight": 1.0}}
    config.masking.draw = "uniform"


def masked(config):
    """Set up BERT's objective, on short sentences, one a row."""
    sentences(config)
    config.objectives = {"mlm": {"weight": 1.0}}
    config.masking.rate = 0.4  # at 15 % only one word of so short a sentence
    config.masking.rounding = "nearest"


def causal(config):
    """Set up GPT's objective, for the same text, model size and number of updates."""
    sentences(config)
    config.objectives = {"causal_lm": {"weight": 1.0}}
    config.model.causal = True


def sentences(config):
    """Set the text, model and training that the two objectives share."""
    text(config, "sentences.txt")
    config.sequence_length = 12
    # Stop 2 compares the vectors of words: little of their random start should remain.
    config.model.init_stddev = 0.05
    config.batch_size = 64
    config.steps = 400


def nsp(config):
    """Set up next sentence prediction, on pairs of lines of four short poems."""
    text(config, "verses.txt")
    # In real runs it stands beside `mlm`; alone, it is learnt in seconds.
    config.objectives = {"nsp": {"weight": 1.0}}
    config.pairs = "nsp"
    config.examples.short_probability = 0.0
    config.sequence_length = 19  # two lines: longer ones lose a word or two
    config.masking.rate = 0.05  # sixteen lines can spare few words
    config.masking.rounding = "nearest"
    config.optim.learning_rate = 1.5e-3
    config.batch_size = 32
    config.steps = 300


def complaints(config):
    """Set up the classification of thirty complaints by what each is about."""
    task(config, "classify", f"files:{COMPLAINTS}", 120)
    config.model.dropout = 0.3  # thirty texts are soon learnt by heart


def questions(config):
    """Set up question answering: find the answer in a context."""
    task(config, "span", f"files:{DATA / 'questions.jsonl'}", 120)
    config.task.text, config.task.text_pair, config.task.label = "question", "context", "answers"


def names(config):
    """Set up the tagging of names of persons, places and organisations."""
    task(config, "tag", f"files:{DATA / 'names.conll'}", 150)
    config.model.dropout = 0.3


def kinds(config):
    """Set up the tagging of words by kind: six have labels, and twelve others are asked about."""
    files = f"files:train={DATA / 'known.conll'},validation={DATA / 'unseen.conll'}"
    task(config, "tag", files, 100)
    config.sequence_length = 12


def task(config, kind, source, steps):
    """Train a task on all of its labelled data."""
    config.objectives = {kind: {"weight": 1.0, "labels": ()}}
    config.task.source = source
    if "validation=" not in source:
        config.task.validation_fraction = 0.0
    config.batch_size = 8
    config.steps = steps


MODELS = {
    f.__name__: f
    for f in (poem, bert, diffusion, masked, causal, nsp, complaints, questions, names, kinds)
}
