"""Settings of the C allocator for training: freed memory is kept instead of given back."""

from __future__ import annotations

import ctypes
import os
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # <malloc.h>


def find_obstacle() -> str:
    """Return the reason why `retain` would change nothing, or ''; the process stays as it is."""
    for name in os.environ:
        if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES":
            return f"${name} is set, and is left as it is"
    if platform.libc_ver()[0] != "glibc":
        return f"the C library is {platform.libc_ver()[0] or platform.system()}, not glibc"
    if getattr(ctypes.CDLL(None), "mallopt", None) is None:
        return "the C library has no mallopt"
    return ""


def retain() -> str:
    """Make glibc keep freed memory; return '', or the reason why it does not.

    Each step frees and takes the same large buffers. By default glibc maps them anew, and the
    kernel clears tens of thousands of pages a step. For processes that live long and repeat
    themselves; call it before jax starts threads, which is when arenas are made.
    """
    if obstacle := find_obstacle():
        return obstacle
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1)):
        if not mallopt(ctypes.c_int(option), ctypes.c_int(value)):
            return f"mallopt refused option {option}"
    return ""
