"""Checkpoints of a run: saved by Orbax in the background, read only as their manifest confirms."""
