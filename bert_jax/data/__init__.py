"""Everything from raw text to batches: numpy on the host, never jax."""
