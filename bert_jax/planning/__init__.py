"""Compile an update for devices that are not here: memory, collectives and time."""
