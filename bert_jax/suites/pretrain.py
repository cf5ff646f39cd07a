"""Suite `pretrain`: scores the validation split as training does; other suites use it too."""

import dataclasses
from typing import Any

from bert_jax.config import change_knobs, derive, knobs, validation
from bert_jax.data import corpus as corpora
from bert_jax.data import prepare
from bert_jax.data.corpus import Prepared
from bert_jax.errors import ConfigError, need
from bert_jax.evaluation.corpus import Evaluator, join_metrics
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Options
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import place_params
from bert_jax.system import log


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return losses, accuracies and baselines, and the loss and accuracy of each example."""
    config = choose_config(run, options)
    if not config.objectives.keys() & set(knobs.PRETRAINING):
        have = ", ".join(run.config.objectives) or "no head at all"
        raise ConfigError(
            f"suite pretrain needs a head of {', '.join(knobs.PRETRAINING)}; "
            f"{run.folder} has {have}",
            "evaluate a fine-tuned model by --suite=task; nsp and sop need --config.pairs",
        )
    evaluator, params = make_evaluator(run, options, config)
    result, of_examples = evaluator.evaluate_examples(params, Progress("evaluating"))
    if run.from_left is None:
        return result, of_examples
    causal, of_causal = score(run.from_left, options)
    return join_metrics(result, causal), join_metrics(of_examples, of_causal)


def make_evaluator(
    run: runs.TrainedModel, options: Options, config: knobs.Config, **changes: Any
) -> tuple[Evaluator, Any]:
    """Return the evaluator of the validation split, and the model's parameters on the devices.

    Its settings are the settings of the evaluation during training, in which `changes` replaces
    fields.
    """
    settings = config.evals.get("validation", knobs.Eval())
    changes["batch_size"] = options.batch_size or settings.batch_size or knobs.EVALUATED
    params, mesh = place_params(run.params)
    settings = dataclasses.replace(settings, **changes)
    return Evaluator(config, prepare_text(run, options, config), settings, mesh), params


def choose_config(run: runs.TrainedModel, options: Options) -> knobs.Config:
    """Choose the config to evaluate: the checkpoint's model, with the options' text and masks."""
    config = options.config
    foreign = "foreign" in run.meta
    changes = dict(options.changes)
    # A run of ours knows what a row holds; of other models only heads are known.
    rows = set() if foreign else {"pairs", "sequence_length"}
    taken = rows if config is not None else set()
    for path in changes:
        need(
            path not in taken,
            f"config.{path} does nothing beside --config: rows are those of {run.folder}",
            "leave --config out, and the knob changes the checkpoint's own config",
        )
        read = tuple(section for section in validation.OF_TEXT if section not in taken)
        validation.check_evaluation(path, read)
    named = not foreign or any(path.startswith("corpus.") for path in changes)
    if config is None and changes and named:
        config = change_knobs(_drop_other_pairs(run.config, changes), options.changes)
    if config is None:
        need(
            not foreign,
            f"{run.meta.get('foreign')} names no corpus to evaluate it on",
            "name one with --config=FILE.py",
        )
        return run.config
    keep = {"model", "objectives", "tokenizer"} | (rows - changes.keys())
    config = dataclasses.replace(config, **{key: getattr(run.config, key) for key in keep})
    fits = ("mlm", "causal_lm", "replaced", config.pairs)
    return derive(
        dataclasses.replace(
            config,
            tokenizer=dataclasses.replace(config.tokenizer, path=str(run.tokenizer_path)),
            objectives={name: o for name, o in config.objectives.items() if name in fits},
            checkpoints=dataclasses.replace(config.checkpoints, best=""),
        )
    )


def _drop_other_pairs(config: knobs.Config, changes: dict[str, str]) -> knobs.Config:
    """Drop the objective over pairs (nsp or sop) if `changes` ask for another kind of pairs."""
    if changes.get("pairs", config.pairs) == config.pairs:
        return config
    kept = {name: row for name, row in config.objectives.items() if name != config.pairs}
    checkpoints = dataclasses.replace(config.checkpoints, best="")
    return dataclasses.replace(config, objectives=kept, checkpoints=checkpoints)


def prepare_text(run: runs.TrainedModel, options: Options, config: knobs.Config) -> Prepared:
    """Prepare the corpus of a config in the model's vocabulary.

    By default this is the corpus that the model was trained on. A `--config.corpus.KNOB`, or a
    `--config` whose corpus has other knobs, names another corpus.
    """
    named = any(path.startswith("corpus.") for path, _ in options.changes)
    wanted, own = (
        dataclasses.replace(one.corpus, cache="", workers=0) for one in (config, run.config)
    )
    if "corpus" in run.meta and not named and wanted == own:
        return _find_trained_text(run)
    corpus = prepare.prepare_corpus(config, log=log.log_line)
    need(
        corpus.tokenizer.hash == run.tokenizer.hash,
        "the corpus is prepared with another vocabulary than the checkpoint's",
        "prepare it anew",
    )
    return corpus


def _find_trained_text(run: runs.TrainedModel) -> Prepared:
    """Return the corpus that a run was trained on; refuse if it cannot be found any more.

    Text may change with the installed software: docstrings with Python and its packages, and
    sentences with the libraries that split them. Then the corpus as it was prepared for the run is
    used, if it still exists.
    """
    settings, saved = run.config.corpus, run.meta["corpus"]
    cache = corpora.find_cache(settings)
    if corpora.fingerprint_corpus(run.config, cache) == saved:
        return prepare.prepare_corpus(run.config, log=log.log_line)
    vocabulary = run.config.tokenizer
    need(
        not vocabulary.path or corpora.load_vocabulary(vocabulary).hash == run.tokenizer.hash,
        f"{run.folder} was trained with another vocabulary than {vocabulary.path} has now",
        "put the file back",
    )
    kept = corpora.find_prepared(settings, saved)
    own = settings.source == "files"  # whose text changes only by the user's doing
    if kept and (not own or kept.manifest.text == corpora.digest_text(settings, cache)):
        log.log_line(
            f"{run.folder}: the text as it was prepared in {kept.folder}; "
            "what is installed changed since"
        )
        return kept
    if own:
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
