"""What must be known before jax is imported."""

import os

# `make test-all` draws so many random examples of each test, and compiles as a user does.
EXAMPLES = int(os.environ.get("BERT_JAX_EXAMPLES", 0))
# XLA compiles a program in so many parts. Each costs something, and by default there are 32.
FEWER_PARTS = "" if EXAMPLES else "--xla_cpu_parallel_codegen_split_count=1"
