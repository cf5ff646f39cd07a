"""Pages that show the inside of a model: one file each, and one row in `inspect.py`."""
