"""Training: the compiled update, and the records that each run keeps in its folder."""
