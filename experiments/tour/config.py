"""The tiny models of the walk, each trained by the ordinary loop in a few seconds: config.py:NAME.

    bert-jax train --config=experiments/tour/config.py:poem --workdir=runs/poem

NAME is one of MODELS. Two layers of 64, a vocabulary of whole words, no dropout, nothing held out:
what a stop has to show it shows on texts of its own.
"""

from pathlib import Path

from bert_jax.config import default

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
COMPLAINTS = HERE.parent / "complaints" / "complaints.tsv"


def get_config(name="poem"):
    """What all share, then what one has of its own."""
    config = default()
    config.model.size = "tiny"
    config.model.hidden = 64
    config.model.max_positions = 64
    config.model.init_stddev = (
        0.125  # 1 / sqrt(64): so small a model wants larger weights than 0.02
    )
    config.model.dropout = config.model.attention_dropout = 0.0
    config.tokenizer.path = str(DATA / "vocab.txt")
    config.pairs = "none"
    config.sequence_length = 48
    config.optim.learning_rate = 3e-3
    config.optim.warmup_steps = 10
    config.evals = {}
    config.checkpoints.best = ""
    config.logging.every = 50
    config.logging.tensorboard = False
    MODELS[name](config)
    return config


def text(config, name):
    """A text, a sentence a line, all of it to train on."""
    config.corpus.source = "files"
    config.corpus.path = str(DATA / name)
    config.corpus.sentences = "lines"
    config.corpus.validation_fraction = 0.0
    config.corpus.workers = 1


def poem(config):
    """Left to right: each token from those before it."""
    text(config, "poem.txt")
    config.objectives = {"causal_lm": {"weight": 1.0}}
    config.model.causal = True
    config.batch_size = 4
    config.steps = 60
    config.logging.every = 5


def masked(config):
    """BERT's objective, on short sentences, one a row."""
    sentences(config)
    config.objectives = {"mlm": {"weight": 1.0}}
    config.masking.rate = 0.4  # short sentences: at 15 % one word of each


def causal(config):
    """GPT's objective on the same text, of the same size and length."""
    sentences(config)
    config.objectives = {"causal_lm": {"weight": 1.0}}
    config.model.causal = True


def sentences(config):
    """What the two objectives share."""
    text(config, "sentences.txt")
    config.sequence_length = 12
    config.model.init_stddev = (
        0.05  # vectors of words are read here: little of where they began is to remain
    )
    config.batch_size = 64
    config.steps = 400


def nsp(config):
    """Pairs of lines of four short poems."""
    text(config, "verses.txt")
    config.objectives = {
        "nsp": {"weight": 1.0}
    }  # beside `mlm` in real runs; alone, it is learnt in seconds
    config.pairs = "nsp"
    config.examples.short_probability = 0.0
    config.sequence_length = 19  # two lines: longer ones lose a word or two
    config.masking.rate = 0.05  # sixteen lines can spare few words
    config.optim.learning_rate = 1.5e-3
    config.batch_size = 32
    config.steps = 300


def complaints(config):
    """Thirty complaints and what each is about."""
    task(config, "classify", f"files:{COMPLAINTS}", 120)
    config.model.dropout = 0.3  # thirty texts are learnt by heart all too soon


def questions(config):
    """Questions, and where in a context the answer stands."""
    task(config, "span", f"files:{DATA / 'questions.jsonl'}", 120)
    config.task.text, config.task.text_pair, config.task.label = "question", "context", "answers"


def names(config):
    """Words, and the persons, places and organisations they name."""
    task(config, "tag", f"files:{DATA / 'names.conll'}", 150)
    config.model.dropout = 0.3


def kinds(config):
    """Six words with labels; what is asked about are twelve others."""
    task(
        config, "tag", f"files:train={DATA / 'known.conll'},validation={DATA / 'unseen.conll'}", 100
    )
    config.sequence_length = 12


def task(config, kind, source, steps):
    """Labelled data, all of it to train on."""
    config.objectives = {kind: {"weight": 1.0, "labels": ()}}
    config.task.source = source
    config.task.validation_fraction = 0.0
    config.batch_size = 8
    config.steps = steps


MODELS = {f.__name__: f for f in (poem, masked, causal, nsp, complaints, questions, names, kinds)}
