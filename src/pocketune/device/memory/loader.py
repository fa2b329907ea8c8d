"""What the dynamic loader of Linux counts."""

from __future__ import annotations

import ctypes


class _Loaded(ctypes.Structure):
    """The first fields of `dl_phdr_info` of <link.h>."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
        ("unloads", ctypes.c_ulonglong),
    )


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)


def unloaded_libraries() -> int:
    """How many libraries this process has unloaded; 0 if its loader does not count them."""
    # With Python's lock, which a thread that imports holds while it waits for that of the loader.
    visit_all = getattr(ctypes.PyDLL(None), "dl_iterate_phdr", None)
    found = [0]

    def visit(library: ctypes._Pointer[_Loaded], size: int, _data: object) -> int:
        if size >= ctypes.sizeof(_Loaded):
            found[0] = library.contents.unloads
        return 1  # all libraries have the same count

    if visit_all is not None:
        visit_all(_Visit(visit), None)
    return found[0]
