"""bert_jax: pre-training science on BERT, in JAX."""

__version__ = "0.1.0"
