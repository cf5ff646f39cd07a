"""The encoder and its heads: arrays in, arrays out. No losses and no names of data sets."""
