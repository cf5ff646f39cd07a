"""The report of a study: results are collected, grouped, compared and drawn."""
