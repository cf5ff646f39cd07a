"""Workdirs of studies as they would be, made of files alone: plausible numbers, and cells in any
state.

What is true is chosen here, so that a report can be held against it: `truth` is the loss an arm
ends at, but for a part that is the seed's, which all arms share, and a little that is the cell's
own.
"""

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import config as configs
from bert_jax.evaluation.metrics import EXAMPLES, digest
from bert_jax.masking import quotas, rates
from bert_jax.studies import actions, measures
from bert_jax.studies.definition import Cell, axis, expand, variants
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.spec import Budget, Comparison, Finetune, Study, Suite

RATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
ONE_SIZE = {"2 x 64": {"model.hidden": 64, "model.heads": 1}}
SIZES = ONE_SIZE | {"2 x 128": {"model.hidden": 128, "model.heads": 2}}
SEED_DEVIATION, OWN_DEVIATION = 0.05, 0.008
UNIGRAM = 6.43
FIELDS = {"morphology": 0.04, "semantics": -0.03, "syntax": 0.0, "syntax_semantics": -0.02}
VOCABULARY = 4_000
EVALUATIONS = {
    "validation": Suite("pretrain"),
    "cross_rate": Suite("cross_rate"),
    "blimp": Suite("blimp", (("source", "files:blimp"), ("limit", 50))),
    "pos": Finetune("ud_ewt", (("task.source", "files:tags/{split}.conllu"), ("epochs", 2.0))),
}
QUESTION = "Which masking rate gives the best model for the tokens it reads, "
QUESTION += "and does that depend on its size?"
NOTES = "Whatever an arm is trained with, it is evaluated on the same masks, of 15 %."
METRICS = ("validation/mlm_loss", "blimp/accuracy", "pos/accuracy")


HERE = {  # where and when a study was run
    "begun": "2026-11-21T14:00:00+00:00",
    "versions": {"python": "3.11.7", "jax": "0.10.2", "bert-jax": "0.1.0"},
    "git_commit": "abcdef012345",
    "machine": {"platform": "Linux", "cores": 2, "memory_bytes": 2**34, "devices": 0},
}


def base() -> Any:
    """A config small enough to read."""
    tree = configs.default()
    tree.pairs = "none"
    tree.objectives.nsp.weight = None
    tree.model.size = "tiny"
    tree.tokenizer.vocab_size = VOCABULARY
    tree.batch_size, tree.sequence_length, tree.optim.warmup_steps = 32, 64, 100
    tree.masking.rounding = "nearest"  # as `_metrics` writes what was masked
    tree.evals.validation.every = 250
    tree.checkpoints.best = ""
    return tree


def masking_rate(rates=RATES, sizes=SIZES, seeds=(0, 1, 2), **changes: Any) -> Study:
    """The study of rates, at one size or several."""
    axes = (variants("size", sizes), axis("masking.rate", rates))
    budget = Budget("tokens", 2_000 * 32 * 64)
    compared = (Comparison("masking.rate", "15 %", METRICS),)
    study = Study(QUESTION, base(), axes, tuple(seeds), EVALUATIONS, budget, compared)
    return dataclasses.replace(study, **{"published": ("wettig_rates",), "notes": NOTES} | changes)


def rng(*names: object) -> np.random.Generator:
    """Draws that follow from names alone."""
    return np.random.default_rng(int(hashlib.sha256(repr(names).encode()).hexdigest()[:12], 16))


def truth(cell: Cell) -> float:
    """The loss of an arm over all seeds: best near 20 %, a little higher for the larger model."""
    masking, width = cell.config.masking, cell.config.model.hidden
    best = 0.17 if width <= 64 else 0.24
    kept = 0.3 * masking.replace[2] + 0.5 * masking.replace[1]
    odd = 0.02 * (len(cell.labels.get("objective", "")) % 5)
    return 5.2 - 0.004 * (width - 64) + 0.09 * math.log(masking.rate / best) ** 2 + 0.1 * kept + odd


def loss(cell: Cell) -> float:
    """What this very cell ends at."""
    seed = rng("seed", cell.seed).normal(0, SEED_DEVIATION)
    return truth(cell) + seed + rng("own", cell.id).normal(0, OWN_DEVIATION)


def finish(cell: Cell) -> str:
    """The state of every cell of a finished study."""
    return "done"


def build(
    workdir: Path, study: Study, state=finish, name="masking_rate", examples=300, lines=40
) -> StudyFolder:
    """Writes a workdir; a cell is done, trained, halfway, failed, diverged, killed or untouched, as
    `state` says.
    """
    place, evaluations = StudyFolder(Path(workdir)), measures.record_evaluations(study)
    cells = [dataclasses.replace(cell, evaluations=evaluations) for cell in expand(study)]
    spec = f"experiments/{name}"
    command = ["/home/me/.venv/bin/bert-jax", "study", "run", f"{spec}:cpu,0.15 0.4", "--jobs=2"]
    command += ["--workdir", f"/home/me/{name}", "--reuse=../pairs/"]
    named = actions.Named(study, name, spec, place.workdir)
    record = actions._describe_study(named) | HERE | {"command": tuple(command)}
    place.write_study(record, cells)
    place.write_group("feedbeef0123", [cell.id for cell in cells], 12)
    for cell in cells:
        _write_cell(place, study, cell, state(cell), examples, lines)
    return place


def _write_cell(
    place: StudyFolder, study: Study, cell: Cell, state: str, examples: int, lines: int
) -> None:
    if state == "untouched":
        return
    folder, steps = place.cell(cell.id), cell.config.steps
    seconds = 40.0 + 60 * cell.config.masking.rate
    environment = {"parameters": 12_345 * (cell.config.model.hidden or 1), "vocabulary": VOCABULARY}
    environment["machine"] = {"cores": 2, "backend": "cpu", "devices": ["1 x cpu"]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(environment))
    share = {"done": 1.0, "trained": 1.0, "diverged": 0.3}.get(state, 0.5)
    together = len(place.read_group("feedbeef0123").cells)
    _metrics(folder / "metrics.jsonl", cell, share, lines, seconds * together)
    if state == "failed":
        place.write_failure(cell.id, "training", "XlaRuntimeError: out of <memory>")
    if state == "killed":
        place.write_failure(cell.id, "worker", "killed (signal 9)")
    if state == "diverged":
        why = "5 updates in a row were not finite"
        place.write_trained(cell.id, int(0.3 * steps), 0.0, "diverged", why)
    if state in ("done", "trained"):
        place.write_trained(cell.id, steps, seconds, "done")
    if state == "done":
        for name, one in study.evaluations.items():
            found, each = results(cell, one, examples)
            place.write_result(cell, name, found, 3.5, each)


def _metrics(path: Path, cell: Cell, share: float, lines: int, seconds: float) -> None:
    steps, masking, final = cell.config.steps, cell.config.masking, loss(cell)
    every = cell.config.evals["validation"].every
    draws = rng("metrics", cell.id)
    # Of 62 tokens that are neither [CLS] nor [SEP], as many as the quota says.
    rows = []
    for line in range(1, int(lines * share) + 1):
        step = line * steps // lines
        rate = rates.rate_at(masking, step - 1, steps)
        rate = float(quotas.mean_quotas(rate, 62, "nearest")[-1] / 62)
        split = [max(0.0, p + draws.normal(0, 0.01) * (p > 0)) for p in masking.replace]
        row = {"train/loss": 6.0, "train/masked_fraction": rate, "train/quota_fraction": rate}
        row |= {"train/mask_token_fraction": split[0], "train/random_fraction": split[1]}
        row |= {"train/kept_fraction": split[2], "train/learning_rate": 1e-3}
        rows.append({"step": step, "time": round(seconds * step / steps, 3), **row})
    for step in range(every, int(steps * share) + 1, every):
        value = final + (8.3 - final) * math.exp(-6 * step / steps) * (1 + 0.2 * masking.rate)
        shown = final if step == steps else value
        row = {"eval/validation/mlm_loss": shown, "eval/validation/unigram_loss": UNIGRAM}
        rows.append({"step": step, "time": round(seconds * step / steps, 3), **row})
    rows.sort(key=lambda row: row["step"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def results(
    cell: Cell, evaluation: Suite | Finetune, examples: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """What an evaluation finds, and of each example."""
    final, draws = loss(cell), rng("results", cell.id)
    if isinstance(evaluation, Finetune):
        return {"accuracy": 0.9 - 0.1 * (final - 5) + draws.normal(0, 0.004)}, {}
    if evaluation.name == "blimp":
        shared = rng("blimp").random(examples)  # how hard a pair is, for everybody
        chance = 0.62 - 0.2 * (final - 5)
        right = (0.8 * shared + 0.2 * draws.random(examples) < chance).astype(float)
        found = {"pairs": examples, "accuracy": float(right.mean())}
        for key, shift in FIELDS.items():
            found[f"field/{key}"] = chance + shift + draws.normal(0, 0.01)
        each = {"accuracy.sum": right, "accuracy.count": np.ones(examples)}
        return found, {**each, EXAMPLES: digest([b"blimp"])}
    if evaluation.name == "cross_rate":
        trained = cell.config.masking.rate
        found = {}
        for rate in RATES:
            far = 0.12 * math.log(rate / trained) ** 2 * (1.5 if rate > trained else 0.7)
            value = final + 1.4 * (rate - 0.15) + 0.4 * far + draws.normal(0, 0.003)
            found |= {f"{rate:g}/mlm_loss": value, f"{rate:g}/unigram_loss": UNIGRAM}
        return found, {}
    counts = rng("examples").integers(4, 12, examples).astype(float)
    hard = rng("hard").normal(0, 1.0, examples)
    sums = counts * (final + hard - np.average(hard, weights=counts))
    own = draws.normal(0, 0.3, examples)
    sums += counts * (own - np.average(own, weights=counts))
    found = {"examples": examples, "mlm_loss": float(sums.sum() / counts.sum())}
    found |= {"mlm_predictions": int(counts.sum()), "unigram_loss": UNIGRAM}
    each = {"mlm_loss.sum": sums, "mlm_loss.count": counts}
    return found, {**each, EXAMPLES: digest([counts.tobytes()])}
