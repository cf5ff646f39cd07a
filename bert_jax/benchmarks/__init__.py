"""Benchmarks of this project against the alternatives of its users; see `bert_jax/benchmark.py`."""
