"""Report of a study: its results collected, aggregated, compared and drawn."""
