"""Preparation of a corpus: raw text to tokenised, checksummed shards."""
