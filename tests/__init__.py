"""What must be known before jax is imported."""

import os

# `make test-all` draws so many random examples of each test, and compiles as a user does.
EXAMPLES = int(os.environ.get("BERT_JAX_EXAMPLES", 0))
# Tracing makes many objects, and a process that holds a suite has many that stay: looking through
# them less often saves a tenth of all the time.
GARBAGE = (50_000, 20, 50)  # thresholds of gc
# XLA compiles a program in so many parts. Each costs something, and by default there are 32.
FEWER_PARTS = "" if EXAMPLES else "--xla_cpu_parallel_codegen_split_count=1"
