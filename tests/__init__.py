"""What must be known before jax is imported."""

# XLA compiles a program in so many parts. Each costs something, and by default there are 32.
FEWER_PARTS = "--xla_cpu_parallel_codegen_split_count=4"
