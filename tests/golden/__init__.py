"""What other programs and version 0.2 have written, and what wrote it."""
