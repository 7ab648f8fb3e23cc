"""Objects of five kinds, each made by one function that is named for it.

Prints its pid, then waits for a line: meanwhile all of them live.

Not here: what a recorder should make of it (faces/cli/tests/python/kinds.rs).
"""

import os
import sys

COUNT = 20000


class Row:
    def __init__(self, number):
        self.number = number
        self.other = None


def dictionaries():
    return [{"number": None, "other": number} for number in range(COUNT)]


def instances():
    return [Row(None) for _ in range(COUNT)]


def floats():
    return [number * 1.5 for number in range(5 * COUNT)]


def sets():
    return [{number & 7, 100} for number in range(COUNT // 2)]


def strings():
    return ["text number %d" % number for number in range(3 * COUNT)]


held = [dictionaries(), instances(), floats(), sets(), strings()]
print(os.getpid(), flush=True)
sys.stdin.readline()
