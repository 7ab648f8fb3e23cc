"""Works in rounds of the same result until its input ends; prints how the rounds differed: `same` or `DIFFERENT`."""
import json
import random
import re
import sys
import threading

def work():
    rng = random.Random(7)
    rows = [{"id": i, "name": "".join(rng.choices("abcde", k=9)), "tags": [str(i % 7), "x" * (i % 50)]} for i in range(800)]
    read = json.loads(json.dumps(rows))
    words = re.findall(r"a\w+", " ".join(row["name"] for row in read))
    return hash((len(words), tuple(sorted(row["name"] for row in read)[:20])))

def main():
    over = threading.Event()
    results = [set(), set()]
    def rounds(index):
        while not over.is_set():
            results[index].add(work())
    threads = [threading.Thread(target=rounds, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print("same" if len(results[0] | results[1]) == 1 else "DIFFERENT")

main()
