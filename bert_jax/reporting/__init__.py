"""Reads what runs have written, draws figures and builds the pages that show it."""

import logging

# On a new machine matplotlib says that it makes a cache of fonts, in the middle of our own lines.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
