"""The evaluation on a corpus that training and several suites run.

`Evaluator` scores every example of the validation split exactly once, with masks that never change.
"""

import collections
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import objectives, sharding
from bert_jax.batch import Batch, Metrics, StepInputs
from bert_jax.config import conditions, knobs
from bert_jax.config.data_knobs import Law
from bert_jax.data import hashing, pipeline
from bert_jax.data.corpus import Prepared
from bert_jax.evaluation import inference
from bert_jax.evaluation.inference import Progress, ignore_progress
from bert_jax.evaluation.metrics import (
    EXAMPLES,
    Totals,
    digest,
    find_wilson_interval,
    unigram_log_probabilities,
)
from bert_jax.masking import drawn_quotas, draws, quotas, rates
from bert_jax.objectives import network, replaced

OF_TEXT = {"unigram_loss", "unigram_accuracy", "first_label", "examples"}  # of no objective


class Evaluator:
    """An evaluation that is compiled once and called with parameters as often as needed.

    The result does not depend on the batch size or the devices. Masks depend on the example and the
    seed of the evaluation only, padding rows are not counted, and sums are divided once at the end.
    The masks of models that were trained differently are the same, so their numbers compare. Quotas
    are rounded to the nearest number.
    """

    def __init__(self, config: knobs.Config, prepared: Prepared, settings: knobs.Eval, mesh: Mesh):
        draw: Law = "uniform" if "diffusion" in config.objectives else "fixed"
        masks = knobs.Masking(
            rate=settings.rate,
            replace=settings.replace,
            unit=settings.unit,
            draw=draw,
            rounding="nearest",
        )
        masks = dataclasses.replace(
            masks, **{name: getattr(config.masking, name) for name in conditions.list_unit_knobs()}
        )
        self.config = dataclasses.replace(config, masking=masks)
        self.source = pipeline.TextStream(prepared, "validation", self.config, seed=settings.seed)
        self.mesh = mesh
        self.rows = inference.round_batch_size(inference.find_batch_size(config, settings), mesh)
        self.count = self.source.examples_per_epoch
        self.settings = settings
        self.vocabulary = prepared.tokenizer.hash
        self.step_inputs = self.make_inputs(settings.rate)
        unigram = unigram_log_probabilities(self._count_targets(prepared))
        step = _make_step(self.config, prepared, unigram)
        self.step = jax.jit(step, out_shardings=sharding.replicated(mesh))

    def _count_targets(self, prepared: Prepared) -> np.ndarray:
        """Return how often each token of the vocabulary is a target in training [V].

        The training text was counted without [SEP]. If [SEP] is a target too, its frequency is
        estimated from the first held-out examples.
        """
        counts = prepared.unigrams
        objective = self.config.objectives.get("causal_lm")
        if objective is None or not objective.end:
            return counts
        batch = self.source.evaluation_batch(0, 1024)
        sep = prepared.tokenizer.special.sep
        separators = np.sum((batch["tokens"] == sep) & (batch["segment_ids"] > 0))
        per_token = separators / np.sum(batch["unit_ids"] >= 0)
        is_sep = np.arange(len(counts)) == sep
        return counts + np.round(per_token * counts.sum()).astype(np.int64) * is_sep

    def make_inputs(self, rate: float) -> StepInputs:
        """Make the step inputs that mask every example at one rate.

        The rate must not exceed the rate of the settings, for which the prediction slots were
        counted.
        """
        selected = quotas.selection_quotas(self.config.masking, rate, self.config.sequence_length)
        return StepInputs(
            quotas=selected,
            predict_quotas=selected,
            replace=np.asarray(self.settings.replace, np.float32),
            weights={},
            learning_rate=np.float32(0),
            weight_decay=np.float32(0),
            seed=np.uint32(self.settings.seed),
        )

    def draw_inputs(self, count: int) -> list[StepInputs]:
        """Make `count` step inputs under which an example has rates spread evenly from 0 to 1.

        The masks of an example differ from input to input. The uniform numbers by which its rates
        are drawn lie 1 / count apart.
        """
        drawn = drawn_quotas.make_rate_tables(self.config.masking, self.config.sequence_length, 1.0)
        # On the devices, or the weights of the bound would cross to them with every batch.
        large = jax.device_put(drawn, sharding.replicated(self.mesh))
        seeds = [
            self.settings.seed,
            *(hashing.make_key(self.settings.seed, i) for i in range(1, count)),
        ]
        shifts = [int(draws.draw_shift(jnp.uint32(seed % 2**32), jnp.int32(0))) for seed in seeds]
        masks = []
        for number, (seed, shift) in enumerate(zip(seeds, shifts, strict=True)):
            ahead = (shifts[0] - shift) / 2**32 + number / count
            turned = np.roll(drawn.rates, -round(ahead * rates.CELLS), axis=0)
            step_inputs = self.make_inputs(1.0)._replace(
                quotas=None,
                predict_quotas=None,
                seed=np.uint32(seed % 2**32),
                drawn=large._replace(rates=turned),
            )
            masks.append(step_inputs)
        return masks

    def __call__(self, params: Any, progress: Progress = ignore_progress) -> dict[str, float]:
        """Return the metrics of the whole split, as {metric: value}."""
        return self.evaluate_masks(params, [self.step_inputs], progress)[0]

    def evaluate_masks(
        self, params: Any, masks: Sequence[StepInputs], progress: Progress = ignore_progress
    ) -> list[dict[str, float]]:
        """Return the metrics of the whole split under each of several masks, in one pass.

        The result has a {metric: value} for each of `masks`.
        """
        totals = [Totals() for _ in masks]
        for outputs in self._run_batches(params, masks, progress):
            for total, rows in zip(totals, outputs, strict=True):
                total.add(_add_rows(rows))
        return [self._summarize_totals(total) for total in totals]

    def evaluate_examples(
        self,
        params: Any,
        progress: Progress = ignore_progress,
        masks: Sequence[StepInputs] | None = None,
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Return the metrics of the whole split, and the sums and counts of each example.

        They are {metric: value}, and {"METRIC.sum": array, "METRIC.count": array, …}. The arrays
        are float64 [N] in the order of the examples. With several masks, the sums and the counts of
        an example are added over the masks. A further array is a digest of the examples and of the
        settings that mask them.
        """
        totals = Totals()
        parts: dict[str, list[np.ndarray]] = collections.defaultdict(list)
        for outputs in self._run_batches(params, masks or [self.step_inputs], progress):
            for rows in outputs:
                totals.add(_add_rows(rows))
            for name in (name for name in outputs[0] if name not in OF_TEXT):
                parts[f"{name}.sum"].append(sum(rows[name][0] for rows in outputs))
                parts[f"{name}.count"].append(sum(rows[name][1] for rows in outputs))
        arrays = {name: np.concatenate(p).astype(np.float64) for name, p in parts.items()}
        return self._summarize_totals(totals), arrays | {EXAMPLES: digest(self._list_examples())}

    def _list_examples(self) -> Iterator[bytes]:
        """Yield bytes that identify the examples: settings of the masks, then held-out rows.

        The concatenation of the bytes does not depend on the batch size.
        """
        settings = self.settings
        masks = [settings.rate, settings.replace, settings.unit, settings.seed]
        yield json.dumps([self.vocabulary, self.count, masks]).encode()
        keys = ("tokens", "segment_ids", "unit_ids", "example_ids", "labels")
        for index, planned in enumerate(self._plan_batches()):
            batch = self.source.evaluation_batch(index, self.rows)
            count = len(planned.rows)
            columns = [batch[key][:count].reshape(count, -1).astype(np.int64) for key in keys]
            yield np.concatenate(columns, axis=1).tobytes()

    def _plan_batches(self) -> list[inference.Planned]:
        return inference.plan_in_order(self.count, self.rows, self.config.sequence_length)

    def _run_batches(
        self, params: Any, masks: Sequence[StepInputs], progress: Progress
    ) -> Iterator[list[Metrics]]:
        """Yield a list for each batch: the metrics of its rows under each of the masks."""

        def compute(planned: inference.Planned) -> list[Metrics]:
            index = int(planned.rows[0]) // self.rows
            batch = inference.place_batch(self.source.evaluation_batch(index, self.rows), self.mesh)
            return [self.step(params, batch, step_inputs) for step_inputs in masks]

        return (
            outputs for _, outputs in inference.run_plan(compute, self._plan_batches(), progress)
        )

    def _summarize_totals(self, totals: Totals) -> dict[str, float]:
        """Return each objective's metrics, with intervals and baselines, from the totals."""
        values = totals.values()
        metrics: dict[str, float] = {"examples": int(totals.sums["examples"][0])}
        for name in self.config.objectives:
            measured = [f"{name}_loss", f"{name}_accuracy"]
            metrics |= {key: values[key] for key in measured if key in values}
            if name in ("mlm", "causal_lm"):
                metrics[f"{name}_predictions"] = int(totals.sums[f"{name}_loss"][1])
                metrics |= {key: values[key] for key in ("unigram_loss", "unigram_accuracy")}
            elif name in ("nsp", "sop"):
                low, high = find_wilson_interval(*totals.sums[f"{name}_accuracy"])
                metrics |= {f"{name}_accuracy_low": low, f"{name}_accuracy_high": high}
                first = values["first_label"]
                metrics["majority_accuracy"] = max(first, 1 - first)
            elif name == "replaced":
                metrics |= {f"{name}_{one}": values[f"{name}_{one}"] for one in replaced.MEASURES}
                metrics |= replaced.compute_baselines(values["replaced_fraction"])
        return metrics


def join_metrics(masked: Mapping[str, Any], causal: Mapping[str, Any]) -> dict[str, Any]:
    """Join the metrics of a hybrid model that was scored as a masked and as a causal model.

    The causal unigram baseline gets the prefix `causal_lm_`. If both have a metric of the same
    name, the value of the masked model is returned.
    """
    renamed = {f"causal_lm_{k}" if k.startswith("unigram") else k: v for k, v in causal.items()}
    return {**renamed, **masked}


def _add_rows(rows: Metrics) -> dict[str, tuple[float, float]]:
    """Add up each metric over the rows of a batch, as {metric: (sum, count)}, in float64."""
    return {
        name: (float(np.sum(total, dtype=np.float64)), float(np.sum(count, dtype=np.float64)))
        for name, (total, count) in rows.items()
    }


def _make_step(
    config: knobs.Config, prepared: Prepared, unigram: np.ndarray
) -> Callable[[Any, Batch, StepInputs], Metrics]:
    """Build the function that computes {metric: (sums [B], counts [B])} of the rows of a batch."""
    special = prepared.tokenizer.special
    vocab_size = prepared.tokenizer.size
    model = network.build_network(config, vocab_size)
    slots = quotas.count_slots(config.masking, config.sequence_length)
    table = objectives.configure(config.objectives)
    causal = table.get("causal_lm")  # reads the text as it is
    corrupt = objectives.choose_corruption(table)

    def step(params: Any, batch: Batch, step_inputs: StepInputs) -> Metrics:
        if causal:
            masked = batch
            targets, weights = causal.find_targets(batch)
        else:
            masked, _ = corrupt(
                batch,
                step_inputs,
                settings=config.masking,
                special=special,
                vocab_size=vocab_size,
                slots=slots,
            )
            targets = masked["predict_targets"]
            weights = masked["predict_weights"]
        outputs = network.compute_outputs(model, params, masked)
        metrics: Metrics = {}
        for name, objective in table.items():
            single = jax.tree.map(lambda x: x[:, None], (outputs[name], masked))  # batches of one
            metrics |= jax.vmap(objective.loss)(*single)
        count = jnp.sum(weights, -1)  # [B]
        is_commonest = targets == int(np.argmax(unigram))
        metrics["unigram_loss"] = (-jnp.sum(jnp.asarray(unigram)[targets] * weights, -1), count)
        metrics["unigram_accuracy"] = (jnp.sum(is_commonest * weights, -1), count)
        labels = batch["labels"]  # [B, S]
        metrics["first_label"] = (jnp.sum(labels == 0, -1), jnp.sum(labels >= 0, -1))
        is_real = jnp.any(batch["segment_ids"] > 0, -1)
        metrics["examples"] = (is_real, jnp.ones_like(is_real))
        return metrics

    return step
