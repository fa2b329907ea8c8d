"""The heap of glibc: which freed blocks it keeps for reuse, and which it returns to the system.

Elsewhere nothing here has an effect, nor in a process that has imported PyTorch, which is large
anyway and uses large blocks again and again.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of <malloc.h>
_PR_SET_THP_DISABLE = 41  # of <linux/prctl.h>

KEPT = 1 << 22
"""Bytes from which a freed block is returned to the system at once.

glibc itself raises the threshold to 32 MB in a process that uses large blocks. What is small then
settles in the gap that a large block leaves, so that the next large block needs another place: the
peaks of equal runs differed by up to 9 MB. No block of an ordinary photo is as large.
"""
_RETURNED = 1 << 17
"""The same in `freed_at_once`."""

_lock = threading.Lock()
_returning = 0  # contexts of `freed_at_once` that are open, of all threads


def save_memory() -> None:
    """Let all threads allocate from one heap, with glibc, and take only pages that are used.

    By itself glibc gives each thread a heap of its own. The gaps in those of two decoding threads
    take 4 MB. The call has no effect on threads that have allocated already. Where the kernel gives
    huge pages unasked, a run takes up to half as much more.
    """
    if mallopt := _mallopt():
        mallopt(_M_ARENA_MAX, 1)
        _keep_below(KEPT)
        ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)


def trim() -> None:
    """Return freed memory to the system, with glibc."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Return freed blocks of 128 KiB and more to the system at once, with glibc.

    Opening a graph makes several copies of its weights, one after the other, and decoding a large
    photo several of its pixels. If freed blocks were kept for reuse, all copies would be resident
    together. After the context, blocks are kept, because every step needs blocks of the same sizes.
    Threads may be in the context at the same time.
    """
    global _returning
    with _lock:
        _returning += 1
        if _returning == 1:
            _keep_below(_RETURNED)
    try:
        yield
    finally:
        with _lock:
            _returning -= 1
            if not _returning:
                _keep_below(KEPT)


def _keep_below(size: int) -> None:
    """Keep freed blocks of fewer bytes for reuse."""
    if mallopt := _mallopt():
        mallopt(_M_MMAP_THRESHOLD, size)
        mallopt(_M_TRIM_THRESHOLD, 2 * KEPT)


def _mallopt() -> Callable[[int, int], int] | None:
    """The function that sets parameters of glibc's allocator; None elsewhere."""
    if sys.platform != "linux" or "torch" in sys.modules:
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)
