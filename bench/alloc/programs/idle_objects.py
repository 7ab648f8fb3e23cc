"""The python idle workload: builds records in phases, drops most of them, then does nothing.

    build 6 × (70,000 records, a third of the older ones dropped) ──► drop 90 in 100 ──► "dropped" ──► "trim" on stdin

Run with and without PYTHONMALLOC=malloc. What it says and what it is told is as for idle.c, but for the floor, which
floor.so counts in a run of its own. Between "dropped" and the next word nothing is called but read.
"""
import ctypes
import os
import random

trim = ctypes.CDLL(None).malloc_trim
rng = random.Random(20110805)
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


def record(number):
    return {"id": number * 1000003, "name": f"user-{number}-" + rng.choice(WORDS) * rng.randrange(1, 8),
            "tags": [f"tag{rng.randrange(10**6)}" for _ in range(rng.randrange(8))],
            "scores": [rng.random() for _ in range(rng.randrange(12))], "body": bytes(rng.randrange(500))}


def right(item):
    number, rest = divmod(item["id"], 1000003)
    return rest == 0 and item["name"].startswith(f"user-{number}-") and not any(item["body"])


records = []
for phase in range(6):
    records = [item for item in records if rng.random() > 0.33]
    records += [record(phase * 70_000 + number) for number in range(70_000)]
records = [item for item in records if rng.random() < 0.1]
os.write(1, b"dropped\n")
while word := os.read(0, 16):
    if word == b"trim\n":
        trim(0)
        os.write(1, b"trimmed\n")
    elif word == b"check\n":
        os.write(1, b"right\n" if all(right(item) for item in records) else b"wrong\n")
