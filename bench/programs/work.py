"""The python3 workload: objects, strings, dictionaries and sorting, with every block from malloc.

Run with PYTHONMALLOC=malloc, so that the interpreter's own allocator does not hide its blocks, and
PYTHONHASHSEED=0, so that sets and dictionaries are the same in every run.
"""
import random

ROUNDS = 4
RECORDS = 30_000


class Record:
    """What a small service keeps for a user."""

    def __init__(self, rng, number):
        self.number = number
        self.name = "user-%06d" % rng.randrange(10**6)
        self.tags = ["tag%d" % rng.randrange(200) for _ in range(5)]
        self.scores = {tag: rng.random() for tag in self.tags}


def one_round(rng):
    records = [Record(rng, number) for number in range(RECORDS)]
    by_tag = {}
    for record in records:
        for tag in record.tags:
            by_tag.setdefault(tag, []).append(record)
    best = [max(group, key=lambda r: r.scores[tag]).name for tag, group in sorted(by_tag.items())]
    text = "\n".join("%s:%s" % (r.name, ",".join(r.tags)) for r in records)
    words = sorted(set(text.replace(":", ",").replace("\n", ",").split(",")))
    return len(words), best[:3]


def main():
    rng = random.Random(20110805)
    for _ in range(ROUNDS):
        print(*one_round(rng))


main()
