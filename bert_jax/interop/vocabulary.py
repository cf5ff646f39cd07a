"""The size of a config's vocabulary, which models and costs need before preparation."""

import functools

from bert_jax.config import knobs
from bert_jax.data import corpus as corpora
from bert_jax.data import prepare
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import ConfigError, DataError
from bert_jax.system.log import log_line


def vocabulary_size(config: knobs.Config, make: bool = False) -> int:
    """Return the size of a config's vocabulary.

    A vocabulary that is not trained yet is trained with `make`, and is an error otherwise.
    """
    if config.tokenizer.path:
        return corpora.load_vocabulary(config.tokenizer).size
    if config.task.source:
        from bert_jax.interop.runs import read_description  # it imports jax

        return tokenizers.load_tokenizer(read_description(config.init_from)[1]).size
    return _count_trained(config.corpus, config.tokenizer, make)


def assumed_size(config: knobs.Config) -> int:
    """Return the size of a config's vocabulary.

    If the vocabulary is not trained yet, this is the size that the config asks for.
    """
    try:
        return vocabulary_size(config)
    except (ConfigError, DataError):
        if config.task.source or config.tokenizer.path:
            raise
        return config.tokenizer.vocab_size


@functools.cache  # for studies of many cells: the fingerprint reads the whole text
def _count_trained(source: knobs.Corpus, settings: knobs.Tokenizer, make: bool) -> int:
    config = knobs.Config(corpus=source, tokenizer=settings)
    if make:
        return prepare.prepare_corpus(config, log=log_line).tokenizer.size
    cache = corpora.find_cache(source)
    folder = cache / corpora.fingerprint_corpus(config, cache)[:16]
    if not (folder / "manifest.json").is_file():
        raise ConfigError(
            "a trained vocabulary may have fewer than tokenizer.vocab_size = "
            f"{settings.vocab_size} tokens, and a budget of FLOPs needs to know",
            "bert-jax prepare with this config, then the same command; a study that is run "
            "prepares by itself. Or give tokenizer.path",
        )
    return corpora.read_manifest(folder).tokenizer.size
