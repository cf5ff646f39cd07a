"""Exact evaluation on a corpus or on labelled data: every example once, for any batch size."""
