"""Runs from the config to the last step: what they learn, and which step is their best."""

import gc
import math
from pathlib import Path

import numpy as np
import psutil
import pytest

from bert_jax import train
from bert_jax.checkpoints.manifest import list_metrics, list_steps
from bert_jax.config import load_file
from bert_jax.evaluation import corpus
from bert_jax.interop import runs
from bert_jax.training.program import Program
from tests import outcomes, texts
from tests.config.settings import set_and_resolve

KINDS = 4  # words that may stand first in a pair, and as many that may stand second
FOLLOWS = 0.8  # how often the second word follows from the first; else it is any of them
UNDROPPED = {"model__dropout": 0, "model__attention_dropout": 0}


def write_source(folder: Path) -> None:
    """Write sentences of a word of four, mostly the word that belongs to it, and "c d e f".

    Eight sentences are a document, so that no two documents are equal.
    """
    random = np.random.default_rng(0)
    firsts = random.integers(KINDS, size=(800, 8))
    others = random.integers(KINDS, size=firsts.shape)
    seconds = np.where(random.random(firsts.shape) < FOLLOWS, firsts, others)
    documents = [
        "\n".join(f"a{first} b{second} c d e f" for first, second in zip(*pairs, strict=True))
        for pairs in zip(firsts, seconds, strict=True)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents))
    names = [f"{kind}{number}" for kind in "ab" for number in range(KINDS)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *names, *"cdef"]))


def compute_entropy() -> float:
    """Return the least loss in nats a masked word: of two in six something is left to guess."""
    likely = FOLLOWS + (1 - FOLLOWS) / KINDS
    unlikely = (1 - FOLLOWS) / KINDS
    given = -likely * math.log(likely) - (KINDS - 1) * unlikely * math.log(unlikely)
    return given / 3


def test_run_learns_the_entropy_of_its_source(tmp_path, one_device):
    """Within 0.03 nats above, and below only by what 3,000 masked words may differ by chance."""
    write_source(tmp_path)
    data = {"corpus__path": tmp_path / "text.txt", "tokenizer__path": tmp_path / "vocab.txt"}
    # A sentence with [CLS] and [SEP], one of whose six words is masked.
    data |= {"pairs": "none", "sequence_length": 8, "masking__rate": 1 / 6}
    data |= {"masking__replace": (1, 0, 0), "evals__validation__replace": (1, 0, 0)}
    length = {"batch_size": 128, "steps": 200, "checkpoints__every": 200}
    length |= {"corpus__validation_fraction": 0.5, "evals__validation__every": 0}
    config = texts.configure(texts.config_file(tmp_path), **data, **length, **UNDROPPED)
    train.run(config, tmp_path / "run", command=[])
    loss = outcomes.metrics(tmp_path / "run")[-1]["eval/validation/mlm_loss"]
    assert compute_entropy() == pytest.approx(0.196, abs=1e-3)
    assert -0.05 < loss - compute_entropy() < 0.03


def test_fast_config_trains_when_it_is_small(base, tmp_path, one_device):
    """Packed rows in bfloat16, LAMB and no pairs, with a model and text of seconds."""
    tree = load_file(f"{texts.ROOT}/configs/fast.py:base")
    small = load_file(str(base))
    tree.update(corpus=small.corpus, tokenizer=small.tokenizer, logging=small.logging)
    tree.model.update(size="tiny", layers=1, hidden=64, heads=2, dtype="bfloat16")
    tree.optim.update(warmup_steps=2, learning_rate=0.02)
    changes = {"sequence_length": 64, "batch_size": 32, "steps": 8, "logging__every": 1}
    changes |= {"checkpoints__every": 8, "evals__validation__every": 0}
    train.run(set_and_resolve(tree, changes), tmp_path / "run", command=[])
    losses = outcomes.logged(tmp_path / "run", "loss")
    assert losses[-1] < losses[0] - 0.1
    assert outcomes.logged(tmp_path / "run", "examples_per_row")[0] > 1.1


def test_evaluation_of_nothing_is_never_the_best(base, tmp_path, monkeypatch, one_device):
    losses = iter((math.nan, 2.0, math.nan, 1.0, math.nan))
    monkeypatch.setattr(corpus.Evaluator, "__call__", lambda *_: {"mlm_loss": next(losses)})
    every = {"checkpoints__every": 1, "evals__validation__every": 1, "checkpoints__keep": 9}
    train.run(texts.configure(base, steps=5, **every), tmp_path, command=[])
    metas = [outcomes.state(tmp_path, step)[1] for step in range(1, 6)]
    assert [meta["best"] for meta in metas] == [None, 2.0, 2.0, 1.0, 1.0]
    assert [meta["misses"] for meta in metas] == [0, 0, 1, 0, 1]
    ranked = [(step, loss) for step, loss in list_metrics(tmp_path) if loss is not None]
    assert ranked == [(4, 1.0), (2, 2.0)]


def test_patience_serves_the_best_step_between_saves(base, tmp_path, monkeypatch, one_device):
    """The third step is the best, and only the fourth is due to be saved."""
    losses = iter((3.0, 2.5, 2.0, 2.2, 2.1))
    monkeypatch.setattr(corpus.Evaluator, "__call__", lambda *_: {"mlm_loss": next(losses)})
    patient = {"checkpoints__patience": 2, "checkpoints__every": 4, "evals__validation__every": 1}
    train.run(texts.configure(base, steps=9, **patient), tmp_path, command=[])
    assert list_metrics(tmp_path) == [(3, 2.0), (5, 2.1), (4, 2.2)]
    assert runs.open_run(str(tmp_path)).step == 3


# --- a long run -----------------------------------------------------------------------------------

STEPS = 10_000


def measure_process() -> tuple[int, int, int]:
    """Return the resident bytes, open files and threads of this process."""
    gc.collect()
    process = psutil.Process()
    return process.memory_info().rss, process.num_fds(), process.num_threads()


@pytest.mark.slow
def test_memory_files_threads_and_saves_stay_few(base, tmp_path, monkeypatch, one_device):
    """The updates compute nothing: they repeat the metrics of the first.

    The evaluation of step 3,000 is the best, and step 5,000 is kept by name.
    """
    often = {"logging__every": 100, "checkpoints__every": 100, "evals__validation__every": 100}
    often |= {"checkpoints__at": "(5000,)"}
    losses = (1 + abs(step - 3_000) for step in range(100, STEPS + 1, 100))
    monkeypatch.setattr(corpus.Evaluator, "__call__", lambda *_: {"mlm_loss": next(losses)})
    # Nothing is left to chance, or the ledger would stop the run.
    sure = {"masking__replace": "(1,0,0)", "masking__rounding": "nearest"}
    config = texts.configure(base, steps=STEPS, batch_size=4, **often, **sure)
    real, last, measured = Program.update, [], []

    def repeat(self: Program, state, batch, step_inputs):
        if not last:
            last[:] = real(self, state, batch, step_inputs)
        else:
            last[0] = {**state, "step": state["step"] + 1}
        if int(last[0]["step"]) % 1_000 == 0:
            measured.append(measure_process())
        return last[0], last[1]

    monkeypatch.setattr(Program, "update", repeat)
    train.run(config, tmp_path / "run", command=[])
    assert len(measured) == STEPS // 1_000
    early, late = measured[2], measured[-1]
    assert late[0] - early[0] < 64 * 2**20
    assert late[1] <= early[1] + 4  # a save may be under way
    assert late[2] <= early[2] + 4
    assert len(outcomes.read_lines(tmp_path / "run")) == 2 * STEPS // 100
    assert (tmp_path / "run" / "metrics.jsonl").stat().st_size < 150_000
    assert list_steps(tmp_path / "run" / "checkpoints") == [3_000, 5_000, 9_900, 10_000]
