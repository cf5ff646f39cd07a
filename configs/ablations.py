"""Ablations of configs/pretrain.py: ablations.py:NAME or ablations.py:NAME,ARGUMENTS.

    bert-jax train --config=configs/ablations.py:no_nsp --workdir=runs/no_nsp
    bert-jax train --config=configs/ablations.py:masking_rate,0.3 --workdir=runs/rate30
    bert-jax train --config=configs/ablations.py:views,0.15,0.4,small --workdir=runs/views

NAME is a function below; its parameters are the ARGUMENTS, each with its default. A size may stand
last, such as small; it is base if left out. Text, time and cost are those of configs/pretrain.py,
unless the function says otherwise. `bert-jax plan` says what a change costs.
"""

import inspect

from bert_jax.config import load_file, override
from bert_jax.config.knobs import SIZES, Masking
from bert_jax.config.table import build_section
from bert_jax.errors import ConfigError, suggest
from bert_jax.masking import rates

# --- masks ----------------------------------------------------------------------------------------


def masking_rate(config, rate="0.4"):
    """Mask more or fewer tokens than 15 %; the MLM head grows with the rate."""
    override(config, "masking.rate", rate)


def rate_schedule(config):
    """Let the rate fall from 30 % to 15 % over training, in one compiled program."""
    config.masking.rate = 0.3
    config.masking.phases = ((1.0, 0.15, "linear"),)


def drawn_rate(config, law="uniform"):
    """Draw a rate for each example: uniform, cosine_low, cosine_high or beta.

    The mean is 36 % with cosine_low and 64 % with cosine_high. If the highest rate is 100 %, every
    token has a slot of the MLM head, which costs time and memory.
    """
    override(config, "masking.draw", law)


def views(config, rate="0.15", predicted="0.4"):
    """Predict more tokens than are corrupted at a time (Wettig et al. 2023, section 5).

    An example is read in ceil(predicted / rate) views, and each corrupts other tokens of it. The
    batch counts views, so an update costs the same and reads that many times less text.
    """
    override(config, "masking.rate", rate)
    override(config, "masking.prediction_rate", predicted)
    count = rates.count_views(build_section(Masking, config.masking.to_dict(), "config.masking"))
    config.batch_size = round(config.batch_size / count) * count  # whole examples


def weighted_masks(config, power="-0.5"):
    """Prefer rare tokens (power below 0) or frequent ones (above 0), at the same masking rate."""
    config.masking.weights = "frequency"
    override(config, "masking.weights_power", power)


def whole_word(config):
    """Select all pieces of a word together."""
    config.masking.unit = "word"


def span(config):
    """Select runs of whole words, of lengths as SpanBERT draws them."""
    config.masking.unit = "span"


def pmi(config):
    """Select collocations of the training text as one, other words whole (Levine et al. 2021).

    `bert-jax prepare`, or else training, first finds them in ten minutes or so, once for each text,
    and keeps them in collocations/ next to the prepared text.
    """
    config.masking.unit = "pmi"


def static_masks(config):
    """Mask each of ten copies of the corpus once, as BERT's data files do (RoBERTa table 1)."""
    config.masking.dupe_factor = 10


def mask_only(config):
    """Make every selected token [MASK], none random and none kept (BERT table 8)."""
    config.masking.replace = (1.0, 0.0, 0.0)


# --- objectives -----------------------------------------------------------------------------------


def no_nsp(config):
    """Train on full sentences in one segment, without NSP (BERT table 5, RoBERTa table 2)."""
    config.pairs = "none"


def sop(config):
    """Predict the order of two segments in place of NSP, as ALBERT does."""
    config.pairs = "sop"


def left_to_right(config):
    """Predict each token from the tokens before it, without masks and NSP (BERT table 5).

    Costs logits at every token in place of one in seven. `predict generate` goes on with a text.
    """
    override(config, "objectives.causal_lm.weight", "1.0")
    config.model.causal = True
    config.pairs = "none"
    config.checkpoints.best = "causal_lm_loss"


def hybrid(config, share="0.5"):
    """Train on masked and causal examples in one batch: a model that fills masks and generates.

    The share is that of causal examples and of their loss. A masked token is predicted from the
    place before it, as GPT-BERT does. Costs logits at every token in place of one in seven.
    """
    config.pairs = "none"
    override(config, "objectives.hybrid.share", share)
    config.objectives.hybrid.shift = True


def diffusion(config, gamma="1.0"):
    """Train masked diffusion: rates from 0 to 1, and a loss that bounds the text's likelihood.

    Gamma is the power of the weights: 1 is the bound, and 0 weighs all predictions alike. Every
    token has a slot of the MLM head, which costs time and memory. `evaluate --suite=nelbo` gives
    the bound of any model over tokens, or its exact likelihood if it reads from left to right.
    """
    config.pairs = "none"
    config.masking.draw = "uniform"
    config.masking.replace = (1.0, 0.0, 0.0)
    override(config, "objectives.diffusion.gamma", gamma)


def replaced(config, generator=""):
    """Tell for each token whether it is the original, as ELECTRA does.

    A generator as deep but narrower fills masks with tokens drawn from its softmax, and the encoder
    finds those that are not the original. The generator's width is a share of the encoder's: a
    quarter for large, else a third. The paper's base and large have these shares, and a learning
    rate of 2e-4. With 0 there is no generator, and random tokens stand in place of masks. The
    paper's small model is ablations.py:replaced,0.25 with --config.optim.learning_rate=5e-4
    --config.model.layers=12 --config.model.hidden=256 --config.model.heads=4
    --config.model.embedding=128.

    Fine-tuning starts from the encoder, and `predict fill-mask` asks the generator. `bert-jax
    export` writes the encoder as `ElectraForPreTraining`, and with --generator the generator as
    `ElectraForMaskedLM`.
    """
    config.pairs = "none"
    usual = "0.25" if config.model.size == "large" else "0.3333"
    override(config, "objectives.replaced.generator", generator or usual)
    masks = (1.0, 0.0, 0.0)
    if not config.objectives.replaced.generator:
        masks = (0.0, 1.0, 0.0)
        del config.objectives.mlm
    config.masking.replace = masks
    config.evals.validation.replace = masks
    # The better the generator, the harder its tokens are to find: no loss says which step is best.
    config.checkpoints.best = ""


# --- encoders -------------------------------------------------------------------------------------


def pre_ln(config):
    """Normalise before each block instead of after it."""
    config.model.norm = "pre"


def modern(config):
    """Train a later encoder with BERT's objectives: rotary positions, pre-LN and GeGLU."""
    config.model.position = "rotary"
    config.model.norm = "pre"
    config.model.gated = True


# --- from a name to a config ----------------------------------------------------------------------

CHANGES = (
    masking_rate,
    rate_schedule,
    drawn_rate,
    views,
    weighted_masks,
    whole_word,
    span,
    pmi,
    static_masks,
    mask_only,
    no_nsp,
    sop,
    left_to_right,
    hybrid,
    diffusion,
    replaced,
    pre_ln,
    modern,
)
ABLATIONS = {change.__name__: change for change in CHANGES}


def get_config(arg=""):
    name, *arguments = arg.split(",")
    if name not in ABLATIONS:
        problem = f"no ablation {name!r}" if name else "configs/ablations.py:NAME has no name"
        raise ConfigError(problem, suggest(name, ABLATIONS))
    size = "base"
    if arguments and arguments[-1] in SIZES:
        size = arguments.pop()
    change = ABLATIONS[name]
    most = len(inspect.signature(change).parameters) - 1
    if len(arguments) > most:
        word = arguments[-1]
        raise ConfigError(f"ablation {name}: {word!r} is no size", suggest(word, SIZES))
    config = load_file(f"pretrain.py:{size}", beside=__file__)
    change(config, *arguments)
    return config
