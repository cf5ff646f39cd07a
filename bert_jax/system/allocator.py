"""Settings of the C allocator for training: freed memory is kept for the next arrays."""

import ctypes
import os
import platform

# Options of <malloc.h> and their values: no memory maps, no trimming, one arena. With more arenas
# the heap grows less, but glibc maps what is too large for an arena anew at each update.
OPTIONS = {-4: 0, -1: -1, -8: 1}


def find_obstacle() -> str:
    """Explain why `retain_memory` would do nothing, without calling it.

    The result is "" if it would work.
    """
    for name in os.environ:
        if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES":
            return f"${name} is set, and is left as it is"
    if platform.libc_ver()[0] != "glibc":
        return f"the C library is {platform.libc_ver()[0] or platform.system()}, not glibc"
    return ""


def retain_memory() -> str:
    """Make glibc keep freed memory; return "", or the reason why this is not done.

    Each step frees and takes the same large buffers. By default glibc maps new pages for them, and
    the kernel clears tens of thousands of pages a step. Call this before jax starts threads,
    because starting a thread makes an arena.
    """
    obstacle = find_obstacle()
    if not obstacle:
        for option, value in OPTIONS.items():
            ctypes.CDLL(None).mallopt(ctypes.c_int(option), ctypes.c_int(value))
    return obstacle
