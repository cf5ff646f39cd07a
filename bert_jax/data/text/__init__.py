"""The embedded corpus and its prose, and collocations of words."""
