"""The encoder and its heads: arrays in, arrays out; no losses, no dataset names."""
