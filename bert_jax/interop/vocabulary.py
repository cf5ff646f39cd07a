"""The size of a config's vocabulary, which a model and its costs need before anything is prepared."""

from __future__ import annotations

import functools
import sys

from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.text import prepare, shards
from bert_jax.errors import ConfigError


def vocabulary_size(config: knobs.Config, make: bool = False) -> int:
    """The real size of a config's vocabulary: of one that is given or has been trained; else, with `make`, it is."""
    if config.task.source and not config.tokenizer.path:
        from bert_jax.interop.runs import described  # which takes jax with it

        return tokenizers.load(described(config.init_from)[1]).size
    if config.tokenizer.path:
        return prepare.given_tokenizer(config.tokenizer).size
    return _trained_size(config.corpus, config.tokenizer, make)


@functools.cache  # of many cells: the text is read once to name what was made of it
def _trained_size(source: knobs.Corpus, settings: knobs.Tokenizer, make: bool) -> int:
    config = knobs.Config(corpus=source, tokenizer=settings)
    if make:
        return prepare.prepare(
            config, log=lambda text: print(text, file=sys.stderr, flush=True)
        ).tokenizer.size
    cache = prepare.cache_folder(source)
    folder = cache / prepare.fingerprint(config, cache)[:16]
    if not (folder / "manifest.json").is_file():
        raise ConfigError(
            f"a trained vocabulary may have fewer than tokenizer.vocab_size = {settings.vocab_size} tokens, and a "
            "budget of FLOPs needs to know",
            "prepare the corpus first (bert-jax prepare; a study that is run does so itself), or give tokenizer.path",
        )
    return int(shards.read_manifest(folder)["tokenizer"]["size"])
