"""Rows of a file are parsed in a phase; the raw rows stay in the loader object, though only the parsed ones are used.
Mended: the loader drops them."""
import random
import time

from marks import MENDED, mark

random.seed(4)


class Loader:
    def __init__(self):
        self.raw = []
        self.totals = []

    def read(self):
        for number in range(9000):
            values = random.choices(range(100000), k=120)
            self.raw.append(",".join(map(str, values)))

    def parse(self):
        for row in self.raw:
            self.totals.append(sum(map(int, row.split(","))))
        if MENDED:
            self.raw = None


loader = Loader()
mark("load begin")
loader.read()
loader.parse()
mark("load end")
total = 0
for i in range(100000):
    total += loader.totals[i * 7919 % len(loader.totals)]
mark("serving")
# CLOCK: a program that goes on, at rest; nothing is judged by it
time.sleep(0.2)
print(total)
