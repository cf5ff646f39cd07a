"""What the machine and its files are: disks, locks, signals, memory, JSON. Knows nothing of models."""
