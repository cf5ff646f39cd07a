"""The corpus, config and evaluation of suites that read the text of a checkpoint or a config."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_jax.config import changed, derive, knobs, validation
from bert_jax.data import corpus as corpora
from bert_jax.data import prepare
from bert_jax.data.corpus import Prepared
from bert_jax.errors import ConfigError
from bert_jax.evaluation.corpus import Evaluator
from bert_jax.interop import runs
from bert_jax.suites import OfCorpus
from bert_jax.suites.forward import on_devices
from bert_jax.system import log


def make_evaluator(
    run: runs.TrainedModel, options: OfCorpus, config: knobs.Config, **changes: Any
) -> tuple[Evaluator, Any]:
    """Build the evaluation that training calls validation, and place the parameters for it."""
    settings = config.evals.get("validation", knobs.Eval())
    changes["batch_size"] = options.batch_size or settings.batch_size or knobs.EVALUATED
    params, mesh = on_devices(run.params)
    settings = dataclasses.replace(settings, **changes)
    return Evaluator(config, prepare_text(run, options, config), settings, mesh), params


def _without_other_pairs(config: knobs.Config, changes: dict[str, str]) -> knobs.Config:
    """Drop the objective of the pairs if other pairs replace them, which its head cannot score."""
    if changes.get("pairs", config.pairs) == config.pairs:
        return config
    kept = {name: row for name, row in config.objectives.items() if name != config.pairs}
    checkpoints = dataclasses.replace(config.checkpoints, best="")
    return dataclasses.replace(config, objectives=kept, checkpoints=checkpoints)


def prepare_text(run: runs.TrainedModel, options: OfCorpus, config: knobs.Config) -> Prepared:
    """Return the corpus of a config in the model's vocabulary.

    It is the very one that the model was trained on, unless another is named: by any
    `--config.corpus.KNOB`, or by a `--config` with other knobs of the corpus.
    """
    named = any(path.startswith("corpus.") for path, _ in options.changes)
    if "corpus" in run.meta and not named and _text(config.corpus) == _text(run.config.corpus):
        return _find_trained_text(run)
    corpus = prepare.prepare_corpus(config, log=log.line)
    if corpus.tokenizer.hash != run.tokenizer.hash:
        raise ConfigError(
            "the corpus is prepared with another vocabulary than the checkpoint's",
            "prepare it anew",
        )
    return corpus


def _text(settings: knobs.Corpus) -> knobs.Corpus:
    """Return the knobs of a corpus without those that never change its text."""
    return dataclasses.replace(settings, cache="", workers=0)


def _find_trained_text(run: runs.TrainedModel) -> Prepared:
    """Return the corpus that a run was trained on, or refuse to take another text for it.

    Text may have changed without the user's doing: docstrings change with Python and its packages,
    and sentences with the libraries that split them. Then the corpus that was prepared for the run
    is used, if it still exists. Changed files of the user are always an error.
    """
    settings, saved = run.config.corpus, run.meta["corpus"]
    cache = corpora.find_cache(settings)
    if corpora.fingerprint_corpus(run.config, cache) == saved:
        return prepare.prepare_corpus(run.config, log=log.line)
    tokenizer = run.config.tokenizer
    if tokenizer.path and corpora.load_vocabulary(tokenizer).hash != run.tokenizer.hash:
        raise ConfigError(
            f"{run.folder} was trained with another vocabulary than {tokenizer.path} has now",
            "put the file back",
        )
    kept = corpora.find_prepared(settings, saved)
    text = corpora.digest_text(settings, cache)
    if kept is not None and (settings.source != "files" or kept.manifest.get("text") == text):
        log.line(
            f"{run.folder}: the text as it was prepared in {kept.folder}; "
            "what is installed changed since"
        )
        return kept
    if settings.source == "files":
        raise ConfigError(
            f"{run.folder} was trained on other text than {settings.path} holds now, "
            "or libraries that cut it changed",
            "put the text back; to evaluate on what is there now, "
            f"--config.corpus.path={settings.path}",
        )
    raise ConfigError(
        f"{run.folder} was trained on the {settings.source} of other versions of Python or "
        f"packages, and they are not prepared in {cache} ({saved[:16]})",
        f"--config.corpus.source={settings.source} evaluates on those installed here",
    )


def choose_config(run: runs.TrainedModel, options: OfCorpus) -> knobs.Config:
    """Choose the config to evaluate: the checkpoint's model, and the text and masks asked for."""
    config, foreign = options.config, "foreign" in run.meta
    # A run of ours knows what a row holds; of other models only heads are known.
    rows = () if foreign else ("pairs", "sequence_length")
    taken = rows if config is not None else ()
    for path, _ in options.changes:
        if path in taken:
            raise ConfigError(
                f"config.{path} does nothing beside --config: rows are those of {run.folder}",
                "leave --config out, and the knob changes the checkpoint's own config",
            )
        read = (section for section in validation.OF_TEXT if section not in taken)
        validation.in_evaluation(path, tuple(read))
    named = not foreign or any(path.startswith("corpus.") for path, _ in options.changes)
    # To a model without a text, changes that name none are no better than no changes: see below.
    if config is None and options.changes and named:
        config = changed(_without_other_pairs(run.config, dict(options.changes)), options.changes)
    if config is None and foreign:
        raise ConfigError(
            f"{run.meta['foreign']} names no corpus to evaluate it on",
            "name one with --config=FILE.py",
        )
    if config is None:
        return run.config
    keep = ["model", "objectives", "tokenizer"]
    keep += {*rows} - dict(options.changes).keys()
    config = dataclasses.replace(config, **{key: getattr(run.config, key) for key in keep})
    positions = config.model.longest
    if config.sequence_length > positions:
        raise ConfigError(
            f"sequence_length = {config.sequence_length}, and the model has {positions} positions",
            f"lower it: --config.sequence_length={positions}",
        )
    fits = ("mlm", "causal_lm", "replaced", config.pairs)
    return derive(
        dataclasses.replace(
            config,
            tokenizer=dataclasses.replace(config.tokenizer, path=str(run.tokenizer_path)),
            objectives={name: o for name, o in config.objectives.items() if name in fits},
            checkpoints=dataclasses.replace(config.checkpoints, best=""),
        )
    )
