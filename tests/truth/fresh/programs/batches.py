"""Control. Batches of records are read, joined and dropped, one like the other; the results of the last twenty are kept."""
import collections
import random

from marks import mark

random.seed(7)
results = collections.deque(maxlen=20)
for batch in range(1, 41):
    mark(f"batch {batch} begin")
    people = {number: {"name": f"person number {number}", "visits": []} for number in range(1500)}
    for visit in range(5000):
        people[random.randrange(1500)]["visits"].append((visit, random.random()))
    results.append([sum(v for _, v in person["visits"]) for person in people.values()])
    del people
    mark(f"batch {batch} end")
print(round(sum(map(sum, results)), 3))
