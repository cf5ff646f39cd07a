"""bert_jax: pre-training science on BERT, in JAX."""
