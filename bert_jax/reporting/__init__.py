"""Pages, figures and names that reports show; reads what runs have written."""
