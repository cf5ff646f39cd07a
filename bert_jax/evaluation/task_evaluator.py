"""Exact evaluation on a task: every example once, whatever the batch size and the devices."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import objectives, sharding
from bert_jax.batch import Batch, Metrics
from bert_jax.config import knobs
from bert_jax.data import answers, features
from bert_jax.data.examples import Example
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError
from bert_jax.evaluation import inference, scores
from bert_jax.evaluation.inference import Progress, ignore_progress
from bert_jax.evaluation.metrics import Totals, find_wilson_interval
from bert_jax.objectives import network

logger = logging.getLogger(__name__)


class TaskEvaluator:
    """An evaluation on a task, which may be called with parameters many times.

    Examples are encoded once, and one program is compiled for each length.
    """

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
        self.config = config
        self.examples = list(examples)
        self.mesh = mesh
        self.labels = config.objectives[self.kind].labels
        length = config.sequence_length
        self.features = features.encode_examples(
            self.examples, self.kind, tokenizer, config.task, length, train=False
        )
        if cut := self.features.cut:
            logger.info(f"{cut:,} of {len(examples):,} texts are cut to {length} tokens")
        self.size = inference.round_batch_size(batch_size, mesh)
        self.special = tokenizer.special
        model = network.build_network(config, tokenizer.size)
        objective = objectives.TABLE[self.kind]

        def step(params: Any, batch: Batch) -> tuple[jax.Array, Metrics]:
            outputs = network.compute_outputs(model, params, batch)[self.kind]
            return outputs, objective.loss(outputs, batch)

        self.step = jax.jit(step, out_shardings=sharding.replicated(mesh))

    def compute_outputs(
        self, params: Any, progress: Progress = ignore_progress
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """Return the head's outputs for each row, without padding, and {metric: mean}.

        The metrics are those of the head's objective, such as its loss.
        """

        def compute(planned: inference.Planned) -> tuple[jax.Array, Metrics]:
            batch = features.gather_rows(self.features, *planned, self.special)
            return self.step(params, inference.place_batch(batch, self.mesh))

        lengths, totals = self.features.lengths, Totals()
        trimmed: list[Any] = [None] * len(lengths)
        plan = inference.plan_by_length(lengths, self.size)
        for rows, (outputs, metrics) in inference.run_plan(compute, plan, progress):
            totals.add(metrics)
            for row, output in zip(rows.tolist(), outputs, strict=True):
                trimmed[row] = answers.trim_output(self.kind, output, int(lengths[row]))
        return trimmed, totals.values()

    def evaluate(
        self, params: Any, progress: Progress = ignore_progress
    ) -> tuple[dict[str, float], list[answers.Prediction]]:
        """Return the metrics as {metric: value}, and a prediction for each example in order.

        Without labels the only metric is the number of examples. Predictions come from
        `answers.decode_outputs`.
        """
        outputs, means = self.compute_outputs(params, progress)
        task = self.config.task
        predictions = answers.decode_outputs(self.kind, self.features, self.examples, outputs, task)
        metrics: dict[str, float] = {"examples": len(self.examples)}
        labels = [example.label for example in self.examples if example.label is not None]
        if labels:
            metrics["loss"] = means[f"{self.kind}_loss"]
            metrics |= scores.score(self.kind, self.examples, predictions, self.labels, task)
        if self.kind in ("classify", "choice") and "accuracy" in metrics:
            low, high = find_wilson_interval(metrics["accuracy"] * len(labels), len(labels))
            majority = max(Counter(labels).values()) / len(labels)  # of always the largest class
            metrics |= {"accuracy_low": low, "accuracy_high": high, "majority_accuracy": majority}
        return metrics, predictions

    def __call__(self, params: Any, progress: Progress = ignore_progress) -> dict[str, float]:
        """Return the metrics of all examples, as {metric: value}."""
        return self.evaluate(params, progress)[0]
