"""Settings of the C allocator for training: freed memory is kept instead of given back."""

from __future__ import annotations

import ctypes
import os
import platform

# Options of <malloc.h> and their values: no memory maps, no trimming, four arenas. In one arena a
# small array of another thread, which outlives an update, takes a piece of the space that the next
# update's buffer would need, and the heap grows to three times what an update takes.
OPTIONS = {-4: 0, -1: -1, -8: 4}


def find_obstacle() -> str:
    """Say why `retain` would change nothing, or return ''; the process stays as it is."""
    for name in os.environ:
        if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES":
            return f"${name} is set, and is left as it is"
    if platform.libc_ver()[0] != "glibc":
        return f"the C library is {platform.libc_ver()[0] or platform.system()}, not glibc"
    return ""


def retain_memory() -> str:
    """Make glibc keep freed memory; return '', or why it does not.

    Each step frees and takes the same large buffers. By default glibc maps them anew, and the
    kernel clears tens of thousands of pages a step. Call it before jax starts threads, which is
    when arenas are made.
    """
    obstacle = find_obstacle()
    if not obstacle:
        for option, value in OPTIONS.items():
            ctypes.CDLL(None).mallopt(ctypes.c_int(option), ctypes.c_int(value))
    return obstacle
