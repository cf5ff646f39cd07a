"""Read what runs have written, draw figures, and build report pages."""

import logging

# On a new machine matplotlib says that it makes a cache of fonts, in the middle of our own lines.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
