"""The second python workload: one JSON text parsed, changed, written and parsed again.

Run with PYTHONMALLOC=malloc, so that the interpreter's own allocator does not hide its blocks.
"""
import json
import sys

with open(sys.argv[1]) as file:
    text = file.read()
for number in range(3):
    rows = json.loads(text)
    rows = [dict(row, at=[row["at"]["x"], row["at"]["y"], number]) for row in rows if row["weight"] > 100 * number]
    rows.sort(key=lambda row: (row["name"], row["id"]))
    out = json.dumps(rows)
    print(number, len(rows), len(out), hash(out) & 0xffffffff)
