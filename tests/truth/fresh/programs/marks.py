"""Marks from Python, if there is a recorder; and which of the twins this is."""
import ctypes
import sys

MENDED = "mended" in sys.argv[1:]
_process = ctypes.CDLL(None)
_mark = getattr(_process, "skinflint_mark", None)


def mark(name):
    if _mark is not None:
        _mark(name.encode())


def trim():
    _process.malloc_trim(0)
