"""Exact scoring of a task: every example once, whatever the batch size and the devices."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import objectives, sharding
from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.data.labelled import answers, features
from bert_jax.data.labelled.batches import rounded
from bert_jax.data.labelled.examples import Example
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError
from bert_jax.evaluation import scores
from bert_jax.evaluation.corpus import Progress
from bert_jax.evaluation.metrics import Totals, wilson
from bert_jax.objectives import network
from bert_jax.system import fault_points


class TaskEvaluator:
    """Encodes once and compiles once a length; call it with parameters as often as needed."""

    def __init__(
        self,
        config: knobs.Config,
        tokenizer: Tokenizer,
        examples: Sequence[Example],
        batch_size: int,
        mesh: Mesh,
    ):
        if not examples:
            raise DataError(
                f"{config.task.source} holds no examples to score",
                "check task.source and its splits",
            )
        self.kind = next(iter(config.objectives))
        self.config, self.examples, self.mesh = config, list(examples), mesh
        self.labels = config.objectives[self.kind].labels
        self.features = features.encode(
            self.examples, self.kind, tokenizer, config.task, config.sequence_length, train=False
        )
        if self.features.cut:
            text = f"{self.features.cut:,} of {len(self.examples):,} texts are cut to {config.sequence_length} tokens"
            print(text, file=sys.stderr)
        ways = mesh.shape["data"] * mesh.shape["fsdp"]
        self.size = -(-batch_size // ways) * ways
        self.special = tokenizer.special
        model, objective = network.build(config, tokenizer.size), objectives.TABLE[self.kind]

        def step(params: Any, batch: Batch) -> tuple[jax.Array, Metrics]:
            found = network.outputs(model, params, batch)[self.kind]
            return found, objective.loss(found, batch)

        self.step = jax.jit(step, out_shardings=sharding.replicated(mesh))

    def outputs(
        self, params: Any, progress: Progress = lambda done, total: None
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """What the head says of each row, without its padding, and the mean loss."""
        lengths = np.diff(self.features.offsets)
        by_length = np.argsort(
            -lengths, kind="stable"
        )  # the longest first: what does not fit in memory shows at once
        found: list[Any] = [None] * len(lengths)
        totals, mine = Totals(), sharding.local_rows(self.size, self.mesh)
        late: tuple[np.ndarray, Any] | None = None

        def settle() -> None:
            """Takes in the batch before this one, when the device has long finished it."""
            if late is None:
                return
            rows, (outputs, metrics) = late[0], sharding.to_host(late[1])
            totals.add(metrics)
            for row, output in zip(rows.tolist(), outputs, strict=False):  # padding rows beyond
                found[row] = answers.trim(self.kind, output, int(lengths[row]))

        batches = -(-len(lengths) // self.size)
        for index in range(batches):
            rows = by_length[index * self.size : (index + 1) * self.size]
            length = rounded(int(lengths[rows].max()))
            batch = features.batch(self.features, rows, length, self.size, self.special)
            local = {key: value[mine] for key, value in batch.items()}
            now = self.step(params, sharding.place(local, self.size, self.mesh))
            settle()
            late = (rows, now)
            fault_points.point("evaluation", index)
            progress(index + 1, batches)
        settle()
        return found, totals.values()

    def both(
        self, params: Any, progress: Progress = lambda done, total: None
    ) -> tuple[dict[str, float], list[answers.Prediction]]:
        """The metrics, where there are labels, and one prediction an example, in order: see `data/answers.py`."""
        found, means = self.outputs(params, progress)
        task = self.config.task
        predictions = answers.decode(self.kind, self.features, self.examples, found, task)
        metrics: dict[str, float] = {"examples": len(self.examples)}
        if any(one.label is not None for one in self.examples):
            metrics["loss"] = means[f"{self.kind}_loss"]
            metrics |= scores.score(self.kind, self.examples, predictions, self.labels, task)
        if self.kind in ("classify", "choice") and "accuracy" in metrics:
            known = [one.label for one in self.examples if one.label is not None]
            low, high = wilson(metrics["accuracy"] * len(known), len(known))
            most = max(Counter(known).values()) / len(
                known
            )  # what is right who always says the largest class
            metrics |= {"accuracy_low": low, "accuracy_high": high, "majority_accuracy": most}
        return metrics, predictions

    def __call__(
        self, params: Any, progress: Progress = lambda done, total: None
    ) -> dict[str, float]:
        """Metrics of all examples."""
        return self.both(params, progress)[0]
