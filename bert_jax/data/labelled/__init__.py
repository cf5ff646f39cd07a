"""Labelled tasks: sources, checked examples, token rows with their targets."""
