"""Marks, if there is a recorder; which of the twins this is; numbers that are the same in every run."""
import ctypes
import random
import sys

MENDED = "mended" in sys.argv
roll = random.Random(20).randrange


def mark(name):
    found = getattr(ctypes.CDLL(None), "skinflint_mark", None)
    if found:
        found(name.encode())
