"""Exact evaluation of a checkpoint: every example of a split once, on masks that never change."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import faults, knobs, masking, network, objectives, prepare, runs, sharding
from bert_jax.config import changed, resolve, to_dict
from bert_jax.data import pipeline
from bert_jax.data.shards import Prepared
from bert_jax.errors import ConfigError, DataError
from bert_jax.metrics import Totals, unigram_log_probabilities, wilson
from bert_jax.types import Batch, Metrics, Traced


class Evaluator:
    """Compiles once; call it with parameters as often as needed.

    The result does not depend on the batch size or the devices: masks come from the evaluation seed and the example,
    rows that fill up the last batch count nothing, and sums are divided once.
    """

    def __init__(self, config: knobs.Config, prepared: Prepared, settings: knobs.Eval, mesh: Mesh):
        masks = knobs.Masking(rate=settings.rate, replace=settings.replace, unit=settings.unit)
        self.config = dataclasses.replace(config, masking=masks)
        self.source = pipeline.Source(prepared, "validation", self.config, seed=settings.seed)
        self.mesh = mesh
        ways = mesh.shape["data"] * mesh.shape["fsdp"]
        self.rows = -(-settings.batch_size // ways) * ways
        self.batches = self.source.evaluation_batches(self.rows)
        if not self.batches:
            raise DataError("the validation split is empty", "raise --config.corpus.validation_fraction")
        quotas = masking.quota_table(settings.rate, config.sequence_length)
        self.traced = Traced(
            quotas=quotas,
            predict_quotas=quotas,
            replace=np.asarray(settings.replace, np.float32),
            weights={},
            learning_rate=np.float32(0),
            weight_decay=np.float32(0),
            seed=np.uint32(settings.seed),
        )
        self.step = jax.jit(_make_step(self.config, prepared))

    def __call__(
        self, params: Any, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> dict[str, float]:
        """Metrics of the whole split."""
        totals = Totals()
        mine = sharding.local_rows(self.rows, self.mesh)
        late = None  # fetched one batch late, so that the device never waits for the host
        for index in range(self.batches):
            batch = self.source.evaluation_batch(index, self.rows)
            local = {key: value[mine] for key, value in batch.items()}
            found = self.step(params, sharding.place(local, self.rows, self.mesh), self.traced)
            if late is not None:
                totals.add(sharding.to_host(late))
            late = found
            faults.point("evaluation", index)
            progress(index + 1, self.batches)
        totals.add(sharding.to_host(late))
        return self._finish(totals)

    def _finish(self, totals: Totals) -> dict[str, float]:
        values = totals.values()
        out: dict[str, float] = {"examples": int(totals.sums["examples"][0])}
        for name in self.config.objectives:
            out |= {key: values[key] for key in (f"{name}_loss", f"{name}_accuracy")}
            if name == "mlm":
                out["mlm_predictions"] = int(totals.sums["mlm_loss"][1])
                out |= {key: values[key] for key in ("unigram_loss", "unigram_accuracy")}
            else:
                low, high = wilson(*totals.sums[f"{name}_accuracy"])
                out |= {f"{name}_accuracy_low": low, f"{name}_accuracy_high": high}
                out["majority_accuracy"] = max(values["first_label"], 1 - values["first_label"])
        return out


def _make_step(config: knobs.Config, prepared: Prepared) -> Callable[[Any, Batch, Traced], Metrics]:
    special, vocab_size = prepared.tokenizer.special, prepared.tokenizer.size
    model = network.build(config, vocab_size)
    replacements = masking.random_ids(config.masking, special, vocab_size)
    slots = masking.slots(config.masking, config.sequence_length)
    unigram = unigram_log_probabilities(prepared.unigrams)

    def step(params: Any, batch: Batch, traced: Traced) -> Metrics:
        masked, _ = masking.apply(
            batch, traced, settings=config.masking, special=special, replacements=replacements, slots=slots
        )
        outputs = network.outputs(model, params, masked)
        metrics: Metrics = {"examples": (jnp.sum(jnp.any(batch["segment_ids"] > 0, -1)), jnp.ones(()))}
        for name in config.objectives:
            metrics |= objectives.TABLE[name].loss(outputs[name], masked)
        targets, weights = masked["predict_targets"], masked["predict_weights"]
        total = jnp.sum(weights)
        metrics["unigram_loss"] = (-jnp.sum(jnp.asarray(unigram)[targets] * weights), total)
        metrics["unigram_accuracy"] = (jnp.sum((targets == int(unigram.argmax())) * weights), total)
        labels = batch["labels"]
        metrics["first_label"] = (jnp.sum(labels == 0), jnp.sum(labels >= 0))
        return metrics

    return step


def _chosen(run: runs.Run, config: knobs.Config | None) -> knobs.Config:
    """What is evaluated: the model is always the checkpoint's; the text and the masks are the config's."""
    if config is None and "foreign" in run.meta:
        raise ConfigError(f"{run.meta['foreign']} names no corpus to evaluate it on", "name one with --config=FILE.py")
    if config is None:
        return run.config
    keep = ["model", "objectives", "tokenizer"]
    if "foreign" not in run.meta:  # a model of ours says what a row holds; of others only the heads are known
        keep += ["pairs", "sequence_length"]
    chosen = dataclasses.replace(config, **{key: getattr(run.config, key) for key in keep})
    positions = chosen.model.max_positions
    if chosen.model.position == "learned" and chosen.sequence_length > positions:
        raise ConfigError(
            f"sequence_length = {chosen.sequence_length}, and the model has {positions} positions",
            f"lower it: --config.sequence_length={positions}",
        )
    fits = ("mlm", chosen.pairs)
    return resolve(
        to_dict(
            dataclasses.replace(
                chosen,
                tokenizer=dataclasses.replace(chosen.tokenizer, path=str(run.tokenizer_path)),
                objectives={name: o for name, o in chosen.objectives.items() if name in fits},
                checkpoints=dataclasses.replace(chosen.checkpoints, best=""),
            )
        )
    )


def evaluate(run: runs.Run, suite: str, config: knobs.Config | None = None) -> dict[str, float]:
    """Scores a run on a suite; `config` names another corpus, masks or sizes than the run's own."""
    if suite != "pretrain":
        raise ConfigError(f"no suite {suite!r}", "one of: pretrain")
    chosen = _chosen(run, config)
    if not chosen.objectives:
        have = ", ".join(run.config.objectives) or "no head at all"
        raise ConfigError(f"suite pretrain needs an mlm, nsp or sop head; {run.folder} has {have}", "and pairs to fit")
    prepared = prepare.prepare(chosen, log=functools.partial(print, file=sys.stderr))
    if prepared.tokenizer.hash != run.tokenizer.hash:
        raise ConfigError("the corpus is prepared with another vocabulary than the checkpoint's", "prepare it anew")
    mesh = sharding.make_mesh(knobs.Parallel())
    params = jax.device_put(run.params, sharding.state_shardings(run.params, mesh))
    settings = chosen.evals["validation"] if "validation" in chosen.evals else knobs.Eval()
    evaluator = Evaluator(chosen, prepared, settings, mesh)

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty() or done == total:
            print(f"\revaluating {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return evaluator(params, progress)


def run(
    checkpoint: str,
    suite: str,
    config: knobs.Config | None,
    output: Path | None,
    *,
    changes: Sequence[tuple[str, str]] = (),
    tokenizer: str = "",
) -> None:
    """`bert-jax evaluate`: prints `{suite: {metric: value}}`; `changes` are knobs that differ from the run's own."""
    opened = runs.open_run(checkpoint, tokenizer=tokenizer)
    named = "foreign" not in opened.meta or any(path.startswith("corpus.") for path, _ in changes)
    if changes and named:  # changes that do not name a text, to a model without one, are refused below like none
        config = changed(opened.config, changes)
        if config.model != opened.config.model or config.tokenizer != opened.config.tokenizer:
            raise ConfigError("model and tokenizer are the checkpoint's own", "change corpus, masking or evals")
    result = json.dumps({suite: evaluate(opened, suite, config)}, indent=2)
    print(result)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(result + "\n")


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["evaluate", *sys.argv[1:]])
