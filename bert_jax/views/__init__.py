"""The pages of `bert-jax inspect`, one a file."""
