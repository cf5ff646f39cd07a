"""Open models of bert-jax runs and of other projects; write models for other projects."""
