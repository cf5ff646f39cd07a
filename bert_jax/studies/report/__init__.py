"""The report of a study: results collected, aggregated, compared and drawn."""
