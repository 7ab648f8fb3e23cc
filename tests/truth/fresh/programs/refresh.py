"""A daemon that reads a catalogue now and then, makes a summary of it, drops it, and goes on.
Mended: malloc_trim when it is dropped."""
import random
import time

from marks import MENDED, mark, trim

random.seed(3)


def read_catalogue():
    return [random.randbytes(600 + random.randrange(1400)) for _ in range(18000)]


def summarize(entries):
    return bytes(entry[7] for entry in entries) + b"end"


entries = read_catalogue()
summary = [summarize(entries), bytearray(900)]
del entries
if MENDED:
    trim()
# CLOCK: a program that goes on, at rest; nothing is judged by it
time.sleep(0.1)
mark("idle")
total = 0
for i in range(40):
    answer = bytes(2000)
    total += summary[0][i] + answer[3]
    # CLOCK: a program that goes on, at rest; nothing is judged by it
    time.sleep(0.01)
print(total)
