"""Raw text to tokenised, checksummed shards."""
