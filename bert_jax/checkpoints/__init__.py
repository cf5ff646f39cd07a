"""Checkpoints of a run: Orbax saves them in the background; their files are verified when read."""
