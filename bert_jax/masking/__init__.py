"""Masking: which tokens of an example are masked, how many, and by what they are replaced."""
