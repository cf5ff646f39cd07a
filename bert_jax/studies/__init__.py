"""Studies: many runs that are compared to answer one question."""
