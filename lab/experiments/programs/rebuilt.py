#!/usr/bin/env python3
"""SQLite and Redis out of the distribution's sources, as they are and with one change each; what the change saves.

    rebuilt.py sqlite|redis FOLDER SKINFLINT ──► sources (apt-get source, lists of its own) ──► two builds ──► JSON on stdout

    sqlite  pcache1AllocPage takes a page and its header of 272 bytes as one block of 4,368 bytes, for which jemalloc gives
            5,120. Changed: two blocks, of 4,096 and 272.
    redis   an entry of a table is 24 bytes, for which the distribution's jemalloc gives 32. Changed: built with the jemalloc
            of its own sources, whose classes are 8 bytes apart (--with-lg-quantum=3).

B1  Nothing of the machine's lists of packages is changed: they are copied, read and kept in FOLDER.
B2  Both builds have the same flags; the change is made in the text, and has to be found there exactly once.
B3  What both print is the same, or this ends with 1.
"""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

ROWS = 200_000
QUESTION = (f"create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n where i<{ROWS}) "
            "insert into t select i, printf('%040d', i * 7919) from n; create index x on t(b); select count(*), sum(a) from t")
# As configure finds it: without, SQLite puts 8 bytes for a size before each block, and 4,096 becomes 4,104, with which the
# change costs memory (29.4 MB for 27.8).
SIZES = ["-DHAVE_MALLOC_H=1", "-DHAVE_MALLOC_USABLE_SIZE=1"]
KEYS = 400_000


def run(words, folder, **more):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: status {done.returncode}: {done.stderr[-400:] or done.stdout[-400:]}")
    return done.stdout


def sources(package, folder):
    """Unpacks a package's upstream sources; returns their folder (B1)."""
    parts = os.path.join(folder, "parts")
    os.makedirs(parts, exist_ok=True)
    os.makedirs(os.path.join(folder, "lists", "partial"), exist_ok=True)
    for path in ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*")]:
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as text:
            said = text.read()
        if "debian" in said:
            said = re.sub(r"(?m)^deb ", "deb-src ", re.sub(r"(?m)^Types:.*$", "Types: deb-src", said))
            with open(os.path.join(parts, os.path.basename(path)), "w", encoding="utf-8") as out:
                out.write(said)
    places = {"Dir::Etc::SourceList": "none", "Dir::Etc::SourceParts": "parts", "Dir::State::Lists": "lists", "Dir::Cache": "cache"}
    options = [word for key, value in places.items() for word in ("-o", f"{key}={os.path.join(folder, value)}")]
    os.makedirs(os.path.join(folder, "cache", "archives", "partial"), exist_ok=True)
    run(["apt-get", "-q", *options, "update"], folder)
    run(["apt-get", "-q", *options, "source", "--download-only", package], folder)
    archive = next(one for one in glob.glob(os.path.join(folder, f"{package}_*.orig.tar.*")) if not one.endswith(".asc"))
    before = set(os.listdir(folder))
    run(["tar", "xf", archive], folder)
    return os.path.join(folder, (set(os.listdir(folder)) - before).pop())


def changed(text, old, new):
    if text.count(old) != 1:
        sys.exit(f"{old.strip()!r} is {text.count(old)} times in the sources: they are of another version")
    return text.replace(old, new)


def sqlite(folder, skinflint):
    source = sources("sqlite3", folder)
    run(["./configure", "--disable-tcl"], source)
    run(["make", "-s", "sqlite3.c", "shell.c"], source)
    with open(os.path.join(source, "sqlite3.c"), encoding="utf-8") as text:
        said = text.read()
    said = changed(said, "    pPg = pcache1Alloc(pCache->szAlloc);\n",
                   "    pPg = pcache1Alloc(pCache->szPage);\n    p = pPg ? pcache1Alloc(pCache->szAlloc - pCache->szPage) : 0;\n"
                   "    if( pPg && p==0 ){ pcache1Free(pPg); pPg = 0; }\n")
    said = changed(said, "    p = (PgHdr1 *)&((u8 *)pPg)[pCache->szPage];\n    p->page.pBuf = pPg;\n    p->page.pExtra = &p[1];\n"
                   "    p->isBulkLocal = 0;\n", "    p->page.pBuf = pPg;\n    p->page.pExtra = &p[1];\n    p->isBulkLocal = 0;\n")
    said = changed(said, "    pcache1Free(p->page.pBuf);\n  }\n  (*pCache->pnPurgeable)--;",
                   "    pcache1Free(p->page.pBuf);\n    pcache1Free(p);\n  }\n  (*pCache->pnPurgeable)--;")
    with open(os.path.join(source, "changed.c"), "w", encoding="utf-8") as out:
        out.write(said)
    jemalloc = glob.glob("/usr/lib/*/libjemalloc.so.2")[0]
    figures, outputs = {}, []
    for name, file in (("plain", "sqlite3.c"), ("changed", "changed.c")):
        run(["gcc", "-O1", *SIZES, "-o", name, "shell.c", file, "-lpthread", "-ldl", "-lm"], source)
        trace = os.path.join(folder, name + ".sft")
        outputs.append(run([skinflint, "record", "-q", "-o", trace, "--preload", jemalloc, "--", "./" + name, ":memory:", QUESTION], source))
        first = run([skinflint, "counts", "--at", "heap-peak", trace], source).splitlines()[0]
        requested, usable = (int(one) for one in re.search(r"(\d+) bytes requested, (\d+) usable", first).groups())
        lines = run(["/usr/bin/env", f"LD_PRELOAD={jemalloc}", sys.executable, "-c", PEAK, "./" + name, ":memory:", QUESTION], source)
        figures[name] = {"requested": requested, "usable": usable, "peak_kib": int(lines.splitlines()[-1])}
    return figures, outputs


# Prints what a command prints, and the peak of its resident memory in KiB.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def redis(folder, _skinflint):
    source = sources("redis", folder)
    makefile = os.path.join(source, "deps", "Makefile")
    with open(makefile, encoding="utf-8") as text:
        said = text.read()
    plain = changed(said, "--with-lg-quantum=3", "--with-lg-quantum=4")
    figures, outputs = {}, []
    for name, text in (("plain", plain), ("changed", said)):
        with open(makefile, "w", encoding="utf-8") as out:
            out.write(text)
        jobs = f"-j{os.cpu_count() or 1}"
        shutil.rmtree(os.path.join(source, "built"), ignore_errors=True)
        run(["make", "-s", "distclean"], source)
        run(["make", "-s", jobs, "MALLOC=jemalloc"], os.path.join(source, "src"))
        figures[name], said_it = filled(os.path.join(source, "src", "redis-server"), folder)
        outputs.append(said_it)
    return figures, outputs


def filled(server, folder):
    """Fills a server with keys; returns its own figures, and what it says of the keys."""
    path = os.path.join(folder, "redis.sock")
    process = subprocess.Popen([server, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no",
                                "--enable-debug-command", "local"],
                               cwd=folder, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if os.path.exists(path):
                break
            time.sleep(0.1)
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        ask(link, f"DEBUG POPULATE {KEYS} key 16")
        memory = dict(line.split(":", 1) for line in ask(link, "INFO memory").splitlines() if ":" in line)
        count = ask(link, "DBSIZE").strip()
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as text:
            resident = next(int(line.split()[1]) for line in text if line.startswith("VmRSS"))
        return {"usable": int(memory["used_memory"]), "peak_kib": resident}, count
    finally:
        process.kill()
        process.wait()
        if os.path.exists(path):
            os.unlink(path)


def ask(link, words):
    """One question to the server; returns its answer."""
    link.sendall((words + "\r\n").encode())
    answer = b""
    while not answer.endswith(b"\r\n"):
        answer += link.recv(1 << 16)
    if answer[:1] == b"-":
        sys.exit(f"redis: {words}: {answer.decode().strip()}")
    if answer[:1] == b"$":
        head, _, rest = answer.partition(b"\r\n")
        while len(rest) < int(head[1:]) + 2:
            rest += link.recv(1 << 16)
        return rest.decode()
    return answer.decode()


def main():
    which, folder, skinflint = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    figures, outputs = {"sqlite": sqlite, "redis": redis}[which](folder, skinflint)
    if outputs[0] != outputs[1]:
        sys.exit(f"the two builds say different things: {outputs}")
    print(json.dumps({"said": outputs[0].strip(), **figures}))


if __name__ == "__main__":
    main()
