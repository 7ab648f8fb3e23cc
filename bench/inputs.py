"""Inputs of the workloads: generated, never downloaded, the same on every machine.

    SEED ──► work.sql  work.ii  work.json  work.xml  history.git  probe.txt

I1  Every byte follows from SEED and this file (the preprocessed C++ also from the installed headers).
I2  A finished input is kept and not made again; STAMP changes when this file does.
"""
import hashlib
import json
import os
import random
import subprocess

SEED = 20110805
WORDS = [a + b + c for a in ("ba", "ko", "ti", "re") for b in ("lan", "mor", "dis") for c in ("a", "um", "ek")]


def sentence(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def write_sql(path, rows):
    """A table filled by a recursive query, indexed twice, asked three times."""
    with open(path, "w") as out:
        out.write(f"""
PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, weight INTEGER, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO item SELECT i, printf('item-%08d', (i * 2654435761) % 4294967296),
  (i * 40503) % 65536, substr('abcdefghijklmnopqrstuvwxyz', 1 + i % 13, 12) FROM n;
CREATE INDEX by_name ON item(name);
CREATE INDEX by_weight ON item(weight, note);
SELECT count(*), sum(weight) FROM item WHERE name LIKE 'item-0000%';
SELECT weight % 10, count(*), group_concat(DISTINCT note) FROM item GROUP BY 1 ORDER BY 1;
SELECT name FROM item ORDER BY weight DESC, name LIMIT 3;
""")


def write_cpp(path, units):
    """Templates: for each unit an own key type, containers of it, and a compile-time recursion."""
    with open(path, "w") as out:
        for header in ("algorithm", "functional", "map", "numeric", "string", "tuple", "unordered_map", "vector"):
            out.write(f"#include <{header}>\n")
        out.write("template<int N> struct Sum { static constexpr long value = N + Sum<N - 1>::value; };\n"
                  "template<> struct Sum<0> { static constexpr long value = 0; };\n")
        for n in range(units):
            out.write(f"""
struct Key{n} {{ int a; std::string b; bool operator<(const Key{n}& o) const {{ return std::tie(a, b) < std::tie(o.a, o.b); }} }};
long unit{n}(const std::vector<std::string>& in) {{
  std::map<Key{n}, std::vector<std::pair<std::string, Key{n}>>> m; std::unordered_map<std::string, Key{n}> u;
  for (auto& s : in) {{ Key{n} k{{(int)s.size(), s}}; m[k].emplace_back(s, k); u.emplace(s, k); }}
  std::vector<Key{n}> v; for (auto& e : u) v.push_back(e.second);
  std::sort(v.begin(), v.end()); std::function<long(long)> f = [&](long x) {{ return x + (long)m.size(); }};
  return f(std::accumulate(v.begin(), v.end(), 0L, [](long x, const Key{n}& k) {{ return x + k.a; }})) + Sum<{150 + n}>::value;
}}
""")


def write_ii(path, units):
    """The same, preprocessed: cc1plus is then run by itself, with no driver to find headers for it."""
    source = path + ".cc"
    write_cpp(source, units)
    subprocess.run(["g++", "-std=c++17", "-E", "-P", source, "-o", path], check=True, timeout=120)


def write_json(path, records):
    rng = random.Random(SEED)
    rows = [{"id": n, "name": sentence(rng, 2), "tags": [rng.choice(WORDS) for _ in range(4)],
             "weight": round(rng.random() * 1000, 3), "note": sentence(rng, 9),
             "at": {"x": rng.randrange(1000), "y": rng.randrange(1000)}} for n in range(records)]
    with open(path, "w") as out:
        json.dump(rows, out)


def write_xml(path, records):
    rng = random.Random(SEED + 1)
    with open(path, "w") as out:
        out.write('<?xml version="1.0"?>\n<catalogue>\n')
        for n in range(records):
            out.write(f'  <item id="{n}" kind="{rng.choice(WORDS)}"><name>{sentence(rng, 2)}</name>'
                      f"<price>{rng.randrange(100000) / 100}</price><note>{sentence(rng, 12)}</note></item>\n")
        out.write("</catalogue>\n")


def changed_text(rng, lines):
    """A new version of a file: a few lines of it replaced, one added."""
    for _ in range(4):
        lines[rng.randrange(len(lines))] = sentence(rng, 8)
    lines.insert(rng.randrange(len(lines)), sentence(rng, 8))
    return "\n".join(lines) + "\n"


def write_history(path, commits, files=160):
    """A repository by `git fast-import`: every commit changes six files of some hundred lines."""
    rng = random.Random(SEED + 2)
    tree = {f"src/{rng.choice(WORDS)}/{n}.txt": [sentence(rng, 8) for _ in range(300)] for n in range(files)}
    names = sorted(tree)
    subprocess.run(["git", "init", "--quiet", "--bare", path], check=True, timeout=60, env=git_env())
    importer = subprocess.Popen(["git", "-C", path, "fast-import", "--quiet"], stdin=subprocess.PIPE, env=git_env())
    for number in range(commits):
        message = sentence(rng, 6).encode()
        head = f"commit refs/heads/main\ncommitter A U Thor <author@example.org> {1300000000 + number * 3600} +0000\n"
        importer.stdin.write(head.encode() + b"data %d\n%s\n" % (len(message), message))
        for name in names if number == 0 else rng.sample(names, 6):
            text = changed_text(rng, tree[name]).encode()
            importer.stdin.write(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(text), text))
    importer.stdin.close()
    if importer.wait(timeout=120) != 0:
        raise RuntimeError("git fast-import failed")
    subprocess.run(["git", "-C", path, "symbolic-ref", "HEAD", "refs/heads/main"], check=True, timeout=60)
    subprocess.run(["git", "-C", path, "repack", "-adq"], check=True, timeout=120, env=git_env())


def git_env():
    return {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}


def write_probe(path):
    """Keys that are the same in every run; what redis-benchmark itself sends is random."""
    with open(path, "w") as out:
        for n in range(2000):
            out.write(f"SET probe:{n} {hashlib.sha256(b'%d' % n).hexdigest()}\n")


MAKERS = {
    "work.sql": lambda path: write_sql(path, 1_000_000),
    "small.sql": lambda path: write_sql(path, 2_000),
    "demo.sql": lambda path: write_sql(path, 200_000),
    "work.ii": lambda path: write_ii(path, 8),
    "work.json": lambda path: write_json(path, 40_000),
    "small.json": lambda path: write_json(path, 200),
    "work.xml": lambda path: write_xml(path, 52_000),
    "history.git": lambda path: write_history(path, 1_500),
    "probe.txt": write_probe,
}


def ensure(folder, name):
    """Makes the input if it is not there yet; returns its path."""
    with open(__file__, "rb") as own:
        stamp = hashlib.sha256(own.read()).hexdigest()[:8]
    final = os.path.join(folder, stamp, name)
    if not os.path.exists(final):
        os.makedirs(os.path.dirname(final), exist_ok=True)
        MAKERS[name](final + ".part")
        os.rename(final + ".part", final)
    return final


if __name__ == "__main__":
    import argparse
    parser = argparse.ArgumentParser(description="Makes one input and prints its path.",
                                     epilog="example: python3 bench/inputs.py target/bench/inputs demo.sql")
    parser.add_argument("folder")
    parser.add_argument("name", choices=sorted(MAKERS))
    arguments = parser.parse_args()
    print(ensure(arguments.folder, arguments.name))
