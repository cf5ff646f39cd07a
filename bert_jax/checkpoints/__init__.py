"""Saves the state of a run and restores only what its manifest confirms."""
