"""Exact evaluation of a checkpoint: suites by name, and the one that training runs too.

`Evaluator` scores a corpus: every example of its validation split once, on masks that never change. What else can be
asked of a checkpoint is in `suites/`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import objectives, sharding
from bert_jax.batch import Batch, Metrics, StepInputs
from bert_jax.config import knobs, quotas
from bert_jax.data.batches import pipeline
from bert_jax.data.text.shards import Prepared
from bert_jax.errors import DataError
from bert_jax.evaluation.metrics import EXAMPLES, Totals, unigram_log_probabilities, which, wilson
from bert_jax.objectives import causal_lm, masking, network
from bert_jax.system import fault_points

Progress = Callable[[int, int], None]  # how much is done, and of how much


class Evaluator:
    """Compiles once; call it with parameters as often as needed.

    The result does not depend on the batch size or the devices: masks come from the evaluation seed and the example,
    rows that fill up the last batch count nothing, and sums are divided once.
    """

    def __init__(self, config: knobs.Config, prepared: Prepared, settings: knobs.Eval, mesh: Mesh):
        masks = knobs.Masking(rate=settings.rate, replace=settings.replace, unit=settings.unit)
        masks = dataclasses.replace(
            masks, **{name: getattr(config.masking, name) for name in knobs.OF_UNITS}
        )
        self.config = dataclasses.replace(config, masking=masks)
        self.source = pipeline.Source(prepared, "validation", self.config, seed=settings.seed)
        self.mesh = mesh
        ways = mesh.shape["data"] * mesh.shape["fsdp"]
        self.rows = -(-settings.batch_size // ways) * ways
        self.batches = self.source.evaluation_batches(self.rows)
        if not self.batches:
            raise DataError(
                "the validation split is empty", "raise --config.corpus.validation_fraction"
            )
        self.settings, self.vocabulary = settings, prepared.tokenizer.hash
        self.traced = self.at(settings.rate)
        find = _make_step(
            self.config, prepared, unigram_log_probabilities(self._frequencies(prepared))
        )
        self.step = jax.jit(lambda *given: find(*given)[0])
        self.each = jax.jit(
            find, out_shardings=sharding.replicated(mesh)
        )  # compiled where it is asked for alone

    def _frequencies(self, prepared: Prepared) -> np.ndarray:
        """How often training has each token as a target [V].

        Text has no [SEP]. Where it is one too, it is as frequent beside text as among the first held-out examples.
        """
        counts = prepared.unigrams
        asked = self.config.objectives.get("causal_lm")
        if asked is None or not asked.end:
            return counts
        batch = self.source.evaluation_batch(0, 1024)
        sep = prepared.tokenizer.special.sep
        ends = np.sum((batch["tokens"] == sep) & (batch["segment_ids"] > 0)) / np.sum(
            batch["unit_ids"] >= 0
        )
        return counts + np.round(ends * counts.sum()).astype(np.int64) * (
            np.arange(len(counts)) == sep
        )

    def at(self, rate: float) -> StepInputs:
        """The masks of a rate, which must not be above that of the settings: there are slots for no more."""
        selected = quotas.table(rate, self.config.sequence_length)
        return StepInputs(
            quotas=selected,
            predict_quotas=selected,
            replace=np.asarray(self.settings.replace, np.float32),
            weights={},
            learning_rate=np.float32(0),
            weight_decay=np.float32(0),
            seed=np.uint32(self.settings.seed),
        )

    def __call__(
        self, params: Any, progress: Progress = lambda done, total: None
    ) -> dict[str, float]:
        """Metrics of the whole split."""
        return self.sweep(params, [self.traced], progress)[0]

    def sweep(
        self,
        params: Any,
        masks: Sequence[StepInputs],
        progress: Progress = lambda done, total: None,
    ) -> list[dict[str, float]]:
        """Metrics of the whole split under several masks, which one program computes."""
        totals = [Totals() for _ in masks]
        for number, found in self._batches(self.step, params, masks, progress):
            totals[number].add(found)
        return [self._finish(one) for one in totals]

    def detailed(
        self, params: Any, progress: Progress = lambda done, total: None
    ) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """Metrics of the whole split, and float64 [N] METRIC.sum and METRIC.count of its examples, in their order.

        Which examples these are stands beside the arrays: by all that decides what a model reads and is asked.
        """
        totals = Totals()
        rows: dict[str, list[np.ndarray]] = {}
        for _, (metrics, each) in self._batches(self.each, params, [self.traced], progress):
            totals.add(metrics)
            for name, pair in each.items():
                for part, values in zip(("sum", "count"), pair, strict=True):
                    rows.setdefault(f"{name}.{part}", []).append(values)
        count = self.source.count(0)
        arrays = {
            name: np.concatenate(several)[:count].astype(np.float64)
            for name, several in rows.items()
        }
        return self._finish(totals), arrays | {EXAMPLES: which(self._examples())}

    def _examples(self) -> Iterator[bytes]:
        """Yield the held-out rows one after the other, however many are in a batch, after what masks them."""
        settings = self.settings
        masks = [settings.rate, settings.replace, settings.unit, settings.seed]
        yield json.dumps([self.vocabulary, self.source.count(0), masks]).encode()
        for index in range(self.batches):
            batch = self.source.evaluation_batch(index, self.rows)
            left = self.source.count(0) - index * self.rows
            read = [
                batch[key][:left]
                for key in ("tokens", "segment_ids", "unit_ids", "example_ids", "labels")
            ]
            yield np.concatenate(
                [rows.reshape(len(rows), -1).astype(np.int64) for rows in read], axis=1
            ).tobytes()

    def _batches(
        self, step: Callable, params: Any, masks: Sequence[StepInputs], progress: Progress
    ) -> Iterator[tuple[int, Any]]:
        """What a program finds in each batch under each of the masks, which are told by their number."""
        mine = sharding.local_rows(self.rows, self.mesh)
        late: tuple[int, Any] | None = (
            None  # fetched one step late, so that the device never waits for the host
        )
        for index in range(self.batches):
            batch = self.source.evaluation_batch(index, self.rows)
            placed = sharding.place(
                {key: value[mine] for key, value in batch.items()}, self.rows, self.mesh
            )
            for number, traced in enumerate(masks):
                found = step(params, placed, traced)
                if late is not None:
                    yield late[0], sharding.to_host(late[1])
                late = number, found
            fault_points.point("evaluation", index)
            progress(index + 1, self.batches)
        assert late is not None
        yield late[0], sharding.to_host(late[1])

    def _finish(self, totals: Totals) -> dict[str, float]:
        values = totals.values()
        out: dict[str, float] = {"examples": int(totals.sums["examples"][0])}
        for name in self.config.objectives:
            out |= {key: values[key] for key in (f"{name}_loss", f"{name}_accuracy")}
            if name in ("mlm", "causal_lm"):
                out[f"{name}_predictions"] = int(totals.sums[f"{name}_loss"][1])
                out |= {key: values[key] for key in ("unigram_loss", "unigram_accuracy")}
            else:
                low, high = wilson(*totals.sums[f"{name}_accuracy"])
                out |= {f"{name}_accuracy_low": low, f"{name}_accuracy_high": high}
                out["majority_accuracy"] = max(values["first_label"], 1 - values["first_label"])
        return out


def _make_step(
    config: knobs.Config, prepared: Prepared, unigram: np.ndarray
) -> Callable[[Any, Batch, StepInputs], tuple[Metrics, Metrics]]:
    """Sums and counts of a batch; and [B], of each of its rows, those of the objectives."""
    special, vocab_size = prepared.tokenizer.special, prepared.tokenizer.size
    model = network.build(config, vocab_size)
    replacements = masking.random_ids(config.masking, special, vocab_size)
    slots = quotas.slots(config.masking, config.sequence_length)
    table = objectives.of(config.objectives)
    causal = "causal_lm" in config.objectives  # reads the text as it is

    def step(params: Any, batch: Batch, traced: StepInputs) -> tuple[Metrics, Metrics]:
        if causal:
            masked, (targets, weights) = (
                batch,
                causal_lm.targets(batch, config.objectives["causal_lm"].end),
            )
        else:
            masked, _ = masking.apply(
                batch,
                traced,
                settings=config.masking,
                special=special,
                replacements=replacements,
                slots=slots,
            )
            targets, weights = masked["predict_targets"], masked["predict_weights"]
        outputs = network.outputs(model, params, masked)
        metrics: Metrics = {
            "examples": (jnp.sum(jnp.any(batch["segment_ids"] > 0, -1)), jnp.ones(()))
        }
        each: Metrics = {}
        for name, objective in table.items():
            loss = objective.loss
            metrics |= loss(outputs[name], masked)
            each |= jax.vmap(loss)(
                *jax.tree.map(lambda x: x[:, None], (outputs[name], masked))
            )  # rows of one
        total = jnp.sum(weights)
        metrics["unigram_loss"] = (-jnp.sum(jnp.asarray(unigram)[targets] * weights), total)
        metrics["unigram_accuracy"] = (
            jnp.sum((targets == int(np.argmax(unigram))) * weights),
            total,
        )
        labels = batch["labels"]
        metrics["first_label"] = (jnp.sum(labels == 0), jnp.sum(labels >= 0))
        return metrics, each

    return step
