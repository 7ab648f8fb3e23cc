"""The python idle workload: builds records in phases, drops most of them, then does nothing.

    build 6 × (1,000 groups of 40 records, a third of the older dropped) ──► drop 90 in 100 ──► "dropped" ──► "trim"

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
            "scores": [rng.random() for _ in range(rng.randrange(12))], "body": bytes(rng.randrange(2000))}


def right(item):
    number, rest = divmod(item["id"], 1000003)
    return rest == 0 and item["name"].startswith(f"user-{number}-") and not any(item["body"])


groups = []
for phase in range(6):
    groups = [group for group in groups if rng.random() > 0.33]
    for number in range(phase * 40_000, (phase + 1) * 40_000, 40):
        groups.append([record(number + k) for k in range(40)])
groups = [group for group in groups if rng.random() < 0.1]
os.write(1, b"dropped\n")
while word := os.read(0, 16):
    if word == b"trim\n":
        trim(0)
        os.write(1, b"trimmed\n")
    elif word == b"check\n":
        os.write(1, b"right\n" if all(right(item) for group in groups for item in group) else b"wrong\n")
