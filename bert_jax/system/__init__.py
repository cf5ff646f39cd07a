"""The operating system: disks, locks, signals, memory, JSON files, logging; nothing about models."""
