"""Labelled data: sources, checked examples, token rows with their targets."""
