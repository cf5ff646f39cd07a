"""Checkpoints of a run: saved asynchronously, and restored only as their manifest confirms."""
