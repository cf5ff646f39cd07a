"""The base, seeds, budget and evaluations that the studies share, at each scale.

    cpu         two layers of 128 on 73 MB of English, of which a cell reads little: minutes a cell
                on two cores
    docstrings  the same on Python's docstrings, without tasks: what every machine has
    full        the published size, on Wikipedia and books from the hub (the text of
                configs/pretrain.py), as it would be launched on a pod

The text, minimal pairs and tags of `cpu` lie next to the checkout, in ../shared/data. Numbers of
`cpu` that are not in this file are those of configs/tiny.py. A study takes its scale with

    from experiments.scales import get_scale
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import ml_collections

from bert_jax.config import load_file, put, set_values
from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Budget, Comparison, Finetune, Study, Suite

# --- cpu ------------------------------------------------------------------------------------------

SEEDS = (0, 1, 2)
TOKENS = 1_000 * 32 * 64  # read by every cell, padding included
SIZES: dict[str, dict[str, Any]] = {
    "2 x 64": {"model.layers": 2, "model.hidden": 64, "model.heads": 1, "model.init_stddev": 0.08},
    "2 x 128": {
        "model.layers": 2,
        "model.hidden": 128,
        "model.heads": 2,
        "model.init_stddev": 0.05,
    },
}
# With learned positions two layers stay on the plateau near the unigram loss for all of so short a
# run: 0.6 nats below it after 1,500 updates of 2,048 tokens. With rotary positions they are 1.2
# nats below it after 500 updates and 1.6 after 1,000.
LEARNING = {
    "model.position": "rotary",
    "model.init_stddev": 0.05,
    "optim.learning_rate": 3e-3,
    "optim.b2": 0.98,
}
VOCABULARY = 4_000
CORPUS = ("*.gz", 0.002)  # files, and the share of their documents that is held out
# Half a megabyte to train on, read 17 times over, so that each of ten copies comes again; RoBERTa
# reads its text forty times.
READ_OFTEN = ("wikitext2_valid.jsonl.gz", 0.5)
TOKENS_OFTEN = 2 * TOKENS
SIZE_OFTEN = "2 x 64"
# The share of the text that lies in collocations. In so small a text the paper's half would include
# collocations that occur together by chance.
COLLOCATED = 0.3
# At full weight so small a model learns pairs first and words much later: see configs/tiny.py.
NSP_WEIGHT = 0.1
PAIRS = 30  # of each of the 37 paradigms of BLiMP
TAGGED = {  # parts of speech: the first 1,000 sentences only, so that pre-training counts
    "task.rows": 1_000,
    "epochs": 2.0,
    "optim.learning_rate": 1e-3,
    "task.pad": "full",
    "checkpoints.best": "",
    "evals.validation.epochs": None,
    "evals.validation.every": 0,
}
# The same from frozen vectors of both layers, side by side.
FROZEN = TAGGED | {
    "optim.freeze": "^encoder/",
    "optim.learning_rate": 5e-3,
    "model.features": 2,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
}
TAGGED_FILES = {"train": "train", "validation": "dev"}
# The sentiment of 4,000 sentences, from the same recipe.
SENTENCES = TAGGED | {"task.rows": 4_000}


# --- both -----------------------------------------------------------------------------------------

HEADLINE = {  # the metric by which an evaluation compares runs, where it is not accuracy
    **dict.fromkeys(("validation", "only_masks", "whole_words"), "mlm_loss"),
    **dict.fromkeys(("mrpc", "squad", "ner", "ner_frozen"), "f1"),
    "squad2": "best_f1",
    "stsb": "spearman",
    "bound": "nats_per_token",
}


Evaluations = dict[str, Suite | Finetune]


class Scale(NamedTuple):
    """The parts of a study that depend on its scale."""

    base: ml_collections.ConfigDict
    seeds: tuple[int, ...]
    budget: Budget | None  # None: the steps of the base
    sizes: dict[str, dict[str, Any]]  # of models
    evaluations: Evaluations  # of every study
    frozen: dict[str, Finetune]  # features without fine-tuning
    sentences: dict[str, Finetune]  # a task of whole sentences
    alike: dict[str, Finetune]  # how alike two sentences are
    nsp_weight: float
    collocated: float  # masking.pmi_coverage
    instead: str = ""  # the scale for machines without its data

    def study(
        self, baselines: dict[str, str], more: Any = (), apart: Any = (), **fields: Any
    ) -> Study:
        """Build a study at this scale.

        Runs are compared with the baseline of each axis by one metric of each evaluation, those of
        the scale and `more`; those `apart` are made too.
        """
        compared = self.evaluations | dict(more)
        metrics = tuple(f"{name}/{HEADLINE.get(name, 'accuracy')}" for name in compared)
        return Study(
            base=self.base,
            seeds=self.seeds,
            budget=self.budget,
            evaluations=compared | dict(apart),
            comparisons=tuple(Comparison(*pair, metrics) for pair in baselines.items()),
            instead=self.instead,
            **fields,
        )


def get_scale(name: str = "cpu", how: str = "") -> Scale:
    """Return a scale, `cpu`, `docstrings` or `full`.

    Args:
      name: of the scale.
      how: `read_often` has the small text of `cpu` read many times over, and `wettig` has the base
        of Wettig et al. at `full` scale.
    """
    if name not in ("cpu", "docstrings", "full") or how not in ("", "read_often", "wettig"):
        raise ConfigError(f"no scale {name!r}", "cpu, docstrings or full")
    if name == "full":
        scale = _full("preset.py:wettig,large" if how == "wettig" else "pretrain.py:base")
    else:
        scale = _cpu(READ_OFTEN if how == "read_often" else CORPUS, name == "docstrings")
    set_values(scale.base, {"masking.rounding": "nearest"})  # as the committed runs were trained
    scale.base.checkpoints.best = ""  # the last step is evaluated
    scale.base.model.type_vocab = max(2, scale.base.model.type_vocab)  # for tasks of pairs
    return scale


def _cpu(text: tuple[str, float], docstrings: bool) -> Scale:
    base = load_file("../configs/tiny.py", beside=__file__)
    base.pairs = "none"
    base.objectives.nsp.weight = None
    base.batch_size, base.sequence_length = 32, 64
    base.tokenizer.vocab_size = VOCABULARY
    for path, value in LEARNING.items():
        put(base, path.split("."), value)
    base.evals.validation.every = 250
    base.logging.every = 20
    base.logging.trackers = ()
    evaluations: Evaluations = {"validation": Suite("pretrain")}
    frozen: dict[str, Finetune] = {}
    sentences: dict[str, Finetune] = {}
    alike: dict[str, Finetune] = {}
    if not docstrings:
        folder = Path(__file__).resolve().parents[2] / "shared" / "data"
        # Relative, so that a cell has the same name wherever the checkout lies.
        data = os.path.relpath(folder)
        files, held_out = text
        base.corpus.source = "files"
        base.corpus.path = f"{data}/pretrain_text/{files}"
        base.corpus.validation_fraction = held_out
        evaluations["blimp"] = Suite("blimp", (("source", f"files:{data}/blimp"), ("limit", PAIRS)))
        tagged = ",".join(
            f"{split}={data}/pos_ud_ewt/en_ewt-ud-{name}.conllu.gz"
            for split, name in TAGGED_FILES.items()
        )
        source = {"task.source": f"files:{tagged}"}
        evaluations["pos"] = Finetune("ud_ewt", tuple((source | TAGGED).items()))
        frozen["pos_frozen"] = Finetune("ud_ewt", tuple((source | FROZEN).items()))
        sentences["sst2"] = _glue("sst2", f"{data}/glue/SST-2", SENTENCES)
        alike["stsb"] = _glue("stsb", f"{data}/glue/STS-B", TAGGED | {"task.rows": 0})
    budget = Budget("tokens", TOKENS)
    if text == READ_OFTEN:
        budget = Budget("tokens", TOKENS_OFTEN)
        base.evals.validation.every = 1_000  # held-out text is seven times as long as usual
        for path, value in SIZES[SIZE_OFTEN].items():
            put(base, path.split("."), value)
    tasks = evaluations, frozen, sentences, alike
    instead = "" if docstrings else "docstrings"
    return Scale(base, SEEDS, budget, SIZES, *tasks, NSP_WEIGHT, COLLOCATED, instead)


def _glue(task: str, folder: str, recipe: dict[str, Any]) -> Finetune:
    """Fine-tune on files of GLUE as they are distributed."""
    source = {"task.source": f"files:train={folder}/train.tsv,validation={folder}/dev.tsv"}
    return Finetune(task, tuple((source | recipe).items()))


# --- full -----------------------------------------------------------------------------------------

PUBLISHED_SIZES = {size: {"model.size": size} for size in ("medium", "base", "large")}
TASKS = ("mnli", "qnli", "sst2")  # from TFDS, with the recipes of data/tasks.py
FEATURES = {  # BERT's feature-based named entities: the last four layers, frozen
    "optim.freeze": "^encoder/",
    "optim.learning_rate": 1e-3,
    "model.features": 4,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
}


def _full(config: str) -> Scale:
    base = load_file(f"../configs/{config}", beside=__file__)
    evaluations: Evaluations = {"validation": Suite("pretrain")}
    evaluations["blimp"] = Suite("blimp", (("source", "tfds:blimp"),))
    evaluations |= {task: Finetune(task) for task in TASKS}
    frozen = {"ner_frozen": Finetune("conll2003", tuple(FEATURES.items()))}
    return Scale(base, SEEDS, None, PUBLISHED_SIZES, evaluations, frozen, {}, {}, 1.0, 0.5)
