"""bert_jax: pre-training science on BERT, in JAX."""

from bert_jax.system import log as _log

__version__ = "0.1.0"

_log.install()
