"""Measurements of this project beside what its users would otherwise run; see `bert_jax/benchmark.py`."""
