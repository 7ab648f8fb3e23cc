"""Eight Python programs, each with planted holders: what the bench of Python's frames (frames.py) runs.

    python3 frames_programs.py NAME SCALE  ──►  digest of what it computed; PLANTED objects live on at the end

P1  What is printed depends on NAME and SCALE alone: seeds are fixed, nothing is timed.
P2  `planted` makes PLANTED bytes objects of PLANTED_BYTES each (33 bytes of them are the object's own), on its one line, and
    they live until the process ends without destroying anything: what they hold is known by hand.
"""
import hashlib
import os
import random
import sys

PLANTED = 20_000
PLANTED_BYTES = 300
held = []


def planted():
    text = b"p"
    held.extend([text * (PLANTED_BYTES - 33) for _ in range(PLANTED)])


#: The line of the statement that plants: the second below the function's first.
PLANTED_LINE = planted.__code__.co_firstlineno + 2


def rows(count, seed=7):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(3, 12))) for _ in range(997)]
    return [{"id": i, "name": rng.choice(words), "tags": rng.sample(words, 3), "price": rng.random()} for i in range(count)]


def run_json(scale):
    import json
    text = json.dumps(rows(4000 * scale))
    out = hashlib.sha256()
    for _ in range(6):
        read = json.loads(text)
        out.update(json.dumps(read, sort_keys=True).encode())
    return out.hexdigest()


def run_ast(scale):
    """Parses, dumps and compiles modules of the standard library."""
    import ast
    import glob
    folder = os.path.dirname(os.__file__)
    out = hashlib.sha256()
    for path in sorted(glob.glob(os.path.join(folder, "*.py")))[:24 * scale]:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        tree = ast.parse(source)
        out.update(str(sum(1 for _ in ast.walk(tree))).encode())
        compile(tree, path, "exec")
    return out.hexdigest()


def run_http(scale):
    """A server of the standard library under load: JSON in, JSON out, a thread a connection."""
    import http.client
    import http.server
    import json
    import threading
    store = {row["id"]: row for row in rows(500)}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            wanted = int(self.path.rsplit("/", 1)[1])
            body = json.dumps({"row": store[wanted % 500], "near": [store[(wanted + n) % 500] for n in range(8)]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    out = hashlib.sha256()
    for client in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        for number in range(250 * scale):
            connection.request("GET", f"/row/{client * 31 + number}")
            out.update(connection.getresponse().read())
        connection.close()
    server.shutdown()
    return out.hexdigest()


def run_pandas(scale):
    import numpy
    import pandas
    rng = numpy.random.default_rng(7)
    frame = pandas.DataFrame({"key": rng.integers(0, 500, 60_000 * scale), "value": rng.random(60_000 * scale)})
    frame["text"] = frame["key"].map(lambda key: f"key {key}")
    out = hashlib.sha256()
    for _ in range(4):
        sums = frame.groupby("text")["value"].sum().sort_index()
        joined = frame.merge(sums.rename("sum").reset_index(), on="text")
        out.update(repr(round(float(joined["sum"].mean()), 6)).encode())
    return out.hexdigest()


def run_sqlite(scale):
    import sqlite3
    base = sqlite3.connect(":memory:")
    base.execute("create table part (id integer primary key, name text, price real)")
    for _ in range(3):
        base.execute("delete from part")
        base.executemany("insert into part values (?, ?, ?)",
                         [(row["id"], row["name"], row["price"]) for row in rows(12_000 * scale)])
    out = hashlib.sha256()
    for name, count, price in base.execute("select name, count(*), sum(price) from part group by name order by name"):
        out.update(f"{name} {count} {price:.6f}".encode())
    return out.hexdigest()


def run_regex(scale):
    import re
    text = "\n".join(f"{row['id']:06d} [{row['name']}] {' '.join(row['tags'])} {row['price']:.4f}" for row in rows(6000 * scale))
    line = re.compile(r"^(\d+) \[(\w+)\] ((?:\w+ )+)(\d\.\d+)$", re.M)
    out = hashlib.sha256()
    for _ in range(8):
        out.update(str(sum(len(match.groups()[2]) for match in line.finditer(text))).encode())
        out.update(re.sub(r"[aeiou]\w", lambda match: match[0].upper(), text).encode())
    return out.hexdigest()


def run_pickle(scale):
    import pickle
    data = rows(5000 * scale)
    out = hashlib.sha256()
    for protocol in (2, 4, 5):
        text = pickle.dumps(data, protocol)
        back = pickle.loads(text)
        out.update(str((len(back), back[17]["name"], len(text))).encode())
    return out.hexdigest()


class Node:
    def __init__(self, key, left, right):
        self.key, self.left, self.right = key, left, right

    def sum(self):
        return self.key + (self.left.sum() if self.left else 0) + (self.right.sum() if self.right else 0)


def run_interp(scale):
    """Objects, calls, closures, generators: the interpreter and its small objects alone."""
    def tree(depth, key):
        return Node(key, tree(depth - 1, key * 2), tree(depth - 1, key * 2 + 1)) if depth else None

    def primes():
        found = []
        number = 2
        while True:
            if all(number % prime for prime in found if prime * prime <= number):
                found.append(number)
                yield number
            number += 1

    total = sum(tree(13, 1).sum() for _ in range(4 * scale))
    source = primes()
    total += sum(next(source) for _ in range(500))
    counts = {}
    for number in range(60_000 * scale):
        counts.setdefault(str(number % 1009), []).append((number, number * 2))
    return hashlib.sha256(str((total, len(counts), len(counts["7"]))).encode()).hexdigest()


PROGRAMS = {name[4:]: function for name, function in list(globals().items()) if name.startswith("run_")}


def main():
    name, scale = sys.argv[1], int(sys.argv[2])
    said = PROGRAMS[name](scale)
    planted()
    print(said, len(held))
    sys.stdout.flush()
    # memray writes its file when the interpreter ends.
    if "end" not in sys.argv:
        os._exit(0)


if __name__ == "__main__":
    main()
