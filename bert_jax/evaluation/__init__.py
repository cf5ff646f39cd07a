"""Exact scoring of a corpus and of labelled data: every example once, whatever the batch size."""
