"""Suites on a corpus: `pretrain` as during training, and `cross_rate` with masks of many rates."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_jax.config import changed, derive, effects, knobs
from bert_jax.data.text import prepare
from bert_jax.data.text.shards import Prepared
from bert_jax.errors import ConfigError
from bert_jax.evaluation.corpus import Evaluator
from bert_jax.interop import runs
from bert_jax.suites.base import Detailed, Progress, Result, SuiteOptions, need_head, on_devices
from bert_jax.suites.labelled import log

RATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def pretrain(run: runs.Run, ask: SuiteOptions) -> Result:
    """What training reports of its validation split: loss and accuracy of each objective, beside baselines."""
    evaluator, params = _validation(run, ask)
    return evaluator(params, Progress("evaluating"))


def pretrain_each(run: runs.Run, ask: SuiteOptions) -> Detailed:
    """The same, and loss and accuracy of each example."""
    evaluator, params = _validation(run, ask)
    return evaluator.detailed(params, Progress("evaluating"))


def _validation(run: runs.Run, ask: SuiteOptions) -> tuple[Evaluator, Any]:
    """The evaluator, and the parameters where it takes them."""
    config = chosen(run, ask)
    if not config.objectives.keys() & set(knobs.PRETRAINING):
        have = ", ".join(run.config.objectives) or "no head at all"
        raise ConfigError(
            f"suite pretrain needs a head of {', '.join(knobs.PRETRAINING)}; {run.folder} has {have}",
            "and pairs to fit",
        )
    params, mesh = on_devices(run.params)
    return Evaluator(config, prepared(run, ask, config), settings_of(config, ask), mesh), params


def cross_rate(run: runs.Run, ask: SuiteOptions) -> Result:
    """MLM loss and accuracy at many masking rates, beside what the frequency of words alone gives.

    The masks lie inside each other, and at the rate of the pre-training evaluation they are its masks.
    """
    need_head(run, "mlm", "cross_rate")
    config = chosen(run, ask)
    config = dataclasses.replace(config, objectives={"mlm": config.objectives["mlm"]})
    settings = dataclasses.replace(settings_of(config, ask), rate=max(RATES))
    params, mesh = on_devices(run.params)
    evaluator = Evaluator(config, prepared(run, ask, config), settings, mesh)
    found = evaluator.sweep(params, [evaluator.at(rate) for rate in RATES], Progress("cross_rate"))
    return {
        f"{rate:g}": {k: v for k, v in one.items() if k != "examples"}
        for rate, one in zip(RATES, found, strict=True)
    }


def _without_other_pairs(config: knobs.Config, changes: dict[str, str]) -> knobs.Config:
    """The config without the objective whose pairs are changed for others: its head has nothing to say of those."""
    if changes.get("pairs", config.pairs) == config.pairs:
        return config
    kept = {name: one for name, one in config.objectives.items() if name != config.pairs}
    checkpoints = dataclasses.replace(config.checkpoints, best="")
    return dataclasses.replace(config, objectives=kept, checkpoints=checkpoints)


def settings_of(config: knobs.Config, ask: SuiteOptions) -> knobs.Eval:
    """Masks and batches of the evaluation that training calls validation."""
    settings = config.evals["validation"] if "validation" in config.evals else knobs.Eval()
    return dataclasses.replace(settings, batch_size=ask.batch_size or settings.batch_size)


def prepared(run: runs.Run, ask: SuiteOptions, config: knobs.Config) -> Prepared:
    """Return the corpus of a config in the model's vocabulary: the very one it was trained on, unless another is named.

    Another is named by any `--config.corpus.KNOB`, and by a `--config` with other knobs of the corpus.
    """
    named = any(path.startswith("corpus.") for path, _ in ask.changes)
    if "corpus" in run.meta and not named and _place(config.corpus) == _place(run.config.corpus):
        return _own(run)
    found = prepare.prepare(config, log=log)
    if found.tokenizer.hash != run.tokenizer.hash:
        raise ConfigError(
            "the corpus is prepared with another vocabulary than the checkpoint's",
            "prepare it anew",
        )
    return found


def _place(settings: knobs.Corpus) -> knobs.Corpus:
    """Return the knobs of a corpus without those that never change its text."""
    return dataclasses.replace(settings, cache="", workers=0)


def _own(run: runs.Run) -> Prepared:
    """Return the corpus that a run was trained on, or refuse to take another text for it.

    Docstrings change with Python and its packages, and what cuts text with its libraries: then the corpus that was
    prepared for the run is taken while it is there. Files that changed are the user's affair, and are never passed
    over.
    """
    settings, saved = run.config.corpus, run.meta["corpus"]
    if prepare.fingerprint(run.config, prepare.cache_folder(settings)) == saved:
        return prepare.prepare(run.config, log=log)
    tokenizer = run.config.tokenizer
    if tokenizer.path and prepare.given_tokenizer(tokenizer).hash != run.tokenizer.hash:
        raise ConfigError(
            f"{run.folder} was trained with another vocabulary than {tokenizer.path} has now",
            "put the file back",
        )
    found = prepare.kept(settings, saved)
    text = prepare.text_digest(settings, prepare.cache_folder(settings))
    if found is not None and (settings.source != "files" or found.manifest.get("text") == text):
        log(
            f"{run.folder}: the text as it was prepared in {found.folder}; what is installed changed since"
        )
        return found
    here = prepare.cache_folder(settings)
    if settings.source == "files":
        why = f"{run.folder} was trained on other text than {settings.path} holds now, or libraries that cut it changed"
        hint = f"put the text back; to evaluate on what is there now, --config.corpus.path={settings.path}"
    else:
        why = f"{run.folder} was trained on the {settings.source} of other versions of Python or packages, and they "
        why += f"are not prepared in {here} ({saved[:16]})"
        hint = f"--config.corpus.source={settings.source} evaluates on those installed here"
    raise ConfigError(why, hint)


def chosen(run: runs.Run, ask: SuiteOptions) -> knobs.Config:
    """What is evaluated: the model is always the checkpoint's; the text and the masks are the config's."""
    config, foreign = ask.config, "foreign" in run.meta
    named = not foreign or any(path.startswith("corpus.") for path, _ in ask.changes)
    if (
        ask.changes and named
    ):  # changes that do not name a text, to a model without one, are refused below like none
        for path, _ in ask.changes:
            effects.in_evaluation(path)
        config = changed(_without_other_pairs(run.config, dict(ask.changes)), ask.changes)
        if config.model != run.config.model or config.tokenizer != run.config.tokenizer:
            raise ConfigError(
                "model and tokenizer are the checkpoint's own", "change corpus, masking or evals"
            )
    if config is None and foreign:
        raise ConfigError(
            f"{run.meta['foreign']} names no corpus to evaluate it on",
            "name one with --config=FILE.py",
        )
    if config is None:
        return run.config
    keep = ["model", "objectives", "tokenizer"]
    if (
        not foreign
    ):  # a model of ours says what a row holds, unless told; of others only the heads are known
        keep += {"pairs", "sequence_length"} - dict(ask.changes).keys()
    config = dataclasses.replace(config, **{key: getattr(run.config, key) for key in keep})
    positions = config.model.max_positions
    if config.model.position == "learned" and config.sequence_length > positions:
        raise ConfigError(
            f"sequence_length = {config.sequence_length}, and the model has {positions} positions",
            f"lower it: --config.sequence_length={positions}",
        )
    fits = ("mlm", "causal_lm", config.pairs)
    return derive(
        dataclasses.replace(
            config,
            tokenizer=dataclasses.replace(config.tokenizer, path=str(run.tokenizer_path)),
            objectives={name: o for name, o in config.objectives.items() if name in fits},
            checkpoints=dataclasses.replace(config.checkpoints, best=""),
        )
    )
