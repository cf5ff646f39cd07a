"""The operating system: disks, locks, signals, memory, JSON files, logging. No models."""
