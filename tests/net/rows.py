"""Training rows of the net: one for each thing that a user can train, as knobs of a command line.

Every row starts from a frozen model (`models/`), without dropout, and makes 12 updates of 16 rows
of 32 tokens. A head that the model lacks starts at zero: `model.init_stddev` is 0, so that no
number depends on how parameters are drawn or laid out.
"""

from pathlib import Path
from typing import NamedTuple

NET = Path(__file__).parent
MODELS = NET / "models"
GOLDEN = NET / "golden"
TOLERANCE = 2e-5  # relative; golden.py says how small numbers are compared
LOOSE = 2e-3  # of numbers that went through bfloat16

BASE = """
import bert_jax


def get_config():
    config = bert_jax.default_config()
    config.corpus.source = "files"
    config.corpus.path = "texts"
    config.corpus.workers = 1
    config.corpus.validation_fraction = 0.2
    config.corpus.cache = "cache"
    config.tokenizer.path = config.init_from = "models/bert"
    config.model.update(layers=2, hidden=32, heads=2, mlp=64, max_positions=64)
    config.model.update(dropout=0.0, attention_dropout=0.0, init_stddev=0.0)
    config.steps = 12
    config.batch_size = 16
    config.sequence_length = 32
    config.optim.learning_rate = 2e-3
    config.optim.warmup_steps = 3
    config.logging.update(every=1, samples=0, trackers=())
    config.checkpoints.every = 12
    config.evals.validation.every = 12
    return config
"""


class Row(NamedTuple):
    """A feature: the knobs that it changes, and the words that begin its command line."""

    knobs: dict[str, object]
    config: str = "base.py"
    tolerance: float = TOLERANCE


def _alone(objective: str, **knobs: object) -> Row:
    """Return a row without pairs, whose objective is not MLM with NSP."""
    changes = {name.replace("__", "."): value for name, value in knobs.items()}
    weight = {f"objectives.{objective}.weight": 1}
    return Row({"pairs": "none"} | weight | changes)


def _masking(**knobs: object) -> Row:
    """Return a row that masks in another way."""
    return Row({f"masking.{name}": value for name, value in knobs.items()})


def _optim(**knobs: object) -> Row:
    """Return a row with another optimizer or schedule."""
    return Row({f"optim.{name}": value for name, value in knobs.items()})


def _model(fresh: str = "", **knobs: object) -> Row:
    """Return a row of another encoder; `fresh` names the parameters that BERT does not have."""
    changes: dict[str, object] = {f"model.{name}": value for name, value in knobs.items()}
    return Row(changes | ({"init_fresh": fresh} if fresh else {}))


def _adapt(model: str) -> Row:
    """Return a row that trains another family's model on, with its own shape and vocabulary."""
    recipe = {"batch_size": 16, "sequence_length": 32, "steps": 12, "logging.every": 1}
    recipe |= {"evals.validation.every": 12, "corpus.cache": "cache", "corpus.workers": 1}
    recipe |= {"model.dropout": 0, "model.attention_dropout": 0, "optim.learning_rate": 2e-3}
    recipe |= {"logging.trackers": (), "corpus.validation_fraction": 0.2}
    return Row(recipe, f"checkout/configs/adapt.py:texts,init_from=models/{model}")


def _finetune(task: str, model: str, source: str, **knobs: object) -> Row:
    """Return a row of fine-tuning: its recipe, from the frozen model of its kind."""
    changes = {name.replace("__", "."): value for name, value in knobs.items()}
    recipe = {"model.dropout": 0, "model.attention_dropout": 0, "logging.every": 1, "epochs": 2}
    recipe |= {"batch_size": 8, "optim.learning_rate": 1e-3, "sequence_length": 48}
    recipe |= {"model.classifier_dropout": 0, "logging.trackers": ()}
    config = f"checkout/configs/finetune.py:{task},init_from=models/{model}"
    return Row(recipe | {"task.source": f"files:{source}"} | changes, config)


CAUSAL = {"model__causal": True, "init_from": "models/causal"}
HIDDEN = {"masking__replace": "(0.85,0,0.15)", "evals__validation__replace": "(0.85,0,0.15)"}
ROWS: dict[str, Row] = {
    # Masking (F3 to F5)
    "nsp": Row({}),
    "rate_5": _masking(rate=0.05),
    "rate_40": _masking(rate=0.4),
    "rate_100": _masking(rate=1.0),
    "corruption_split": _masking(replace="(0.2,0.5,0.3)"),
    "predict_less": _masking(rate=0.4, prediction_rate=0.15),
    "predict_more": _masking(rate=0.15, prediction_rate=0.3),
    "words": _masking(unit="word"),
    "spans": _masking(unit="span", rate=0.3),
    "pmi": _masking(unit="pmi"),
    "weights": _masking(weights="frequency"),
    "static_copies": Row({"masking.dupe_factor": 2, "batch_size": 128}),
    "linear_rate": _masking(phases="((1.0,0.1,'linear'),)", rate=0.4),
    "phases": _masking(phases="((0.5,0.15,'step'),(1.0,0.05,'cosine'))", rate=0.4),
    "uniform": _masking(draw="uniform", draw_low=0.1, draw_high=0.5),
    "beta": _masking(draw="beta", draw_alpha=2, draw_beta=3),
    "cosine_low": _masking(draw="cosine_low"),
    "cosine_high": _masking(draw="cosine_high"),
    # Objectives (F6)
    "sop": Row({"pairs": "sop", "init_fresh": "^sop/"}),
    "no_pairs": Row({"pairs": "none"}),
    "causal": _alone("causal_lm", checkpoints__best="causal_lm_loss", **CAUSAL),
    "hybrid": _alone("hybrid", init_fresh="^hybrid/"),
    "diffusion": _alone(
        "diffusion",
        masking__draw="uniform",
        masking__replace="(1,0,0)",
        evals__validation__replace="(1,0,0)",
        init_fresh="^diffusion/",
    ),
    "replaced": _alone(
        "replaced",
        init_from="models/electra",
        objectives__mlm__weight=0,
        init_fresh="^mlm/",
        masking__replace="(0,1,0)",
        evals__validation__replace="(0,1,0)",
        checkpoints__best="",
    ),
    "replaced_generator": _alone(
        "replaced",
        init_from="models/electra",
        objectives__replaced__generator=0.5,
        init_fresh="^(generator|mlm)/",
        **HIDDEN,
    ),
    # Rows of several examples (F8), and how an update is computed (F9)
    "packing": Row({"packing": 4, "sequence_length": 64, "examples.short_probability": 1}),
    "accumulation": _optim(accumulation=4),
    "remat": _model(remat="full"),
    "scan": _model(scan=True),
    "bfloat16": _model(dtype="bfloat16")._replace(tolerance=LOOSE),
    "bfloat16_products": _model(dtype="bfloat16_products")._replace(tolerance=LOOSE),
    # Optimizers and schedules (F10)
    "adam2018": _optim(name="adam2018", schedule="linear2018"),
    "lamb": _optim(name="lamb"),
    "layer_decay": _optim(layer_decay=0.5),
    "freeze": _optim(freeze="^encoder/embeddings"),
    "clip": _optim(clip_norm=0.05),
    "cosine_schedule": _optim(schedule="cosine"),
    "constant_schedule": _optim(schedule="constant"),
    "wsd_schedule": _optim(schedule="wsd"),
    # Encoders (F21, F22)
    "sinusoidal": _model(position="sinusoidal", max_positions=512),
    "rotary": _model(position="rotary", max_positions=512),
    "alibi": _model(position="alibi", max_positions=512),
    "relative": _model("relative|position", position="relative"),
    "no_positions": _model(position="none", max_positions=512),
    "pre_norm": _model("final_norm", norm="pre"),
    "window": _model(window=8, global_every=2),
    "roberta": _adapt("roberta"),
    "modernbert": _adapt("modernbert"),
    # Fine-tuning (F14)
    "classify": _finetune("sst2", "classify", "tasks"),
    # Residuals of both signs cancel, so gradient norms fall from 62 to 2: float32 leaves the small
    # norms four digits.
    "regress": _finetune("stsb", "regress", "tasks")._replace(tolerance=1e-4),
    "tag": _finetune("conll2003", "tag", "tasks/words", task__stride=16),
    "span": _finetune("squad", "span", "tasks/squad", task__stride=16),
    "choice": _finetune("copa", "choice", "tasks/copa"),
}


def command(name: str, workdir: str) -> list[str]:
    """Return the words of the command that trains a row: ROW, or ROW:KNOB=VALUE:KNOB=VALUE."""
    name, *changes = name.split(":")
    row = ROWS[name]
    words = ["train", f"--config={row.config}", f"--workdir={workdir}"]
    knobs = [f"{knob}={value}" for knob, value in row.knobs.items()]
    return words + [f"--config.{setting}" for setting in (*knobs, *changes)]
