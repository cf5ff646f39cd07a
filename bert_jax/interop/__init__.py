"""Opens runs of ours and models of others, and writes models for others."""
