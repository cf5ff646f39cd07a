"""Collocations of words."""
