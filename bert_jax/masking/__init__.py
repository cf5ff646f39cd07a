"""Which tokens of an example are masked, how many, and what stands in their place."""
