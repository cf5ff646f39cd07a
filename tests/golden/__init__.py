"""What other programs and the first version have written, and what wrote it."""
