"""How much memory malloc holds, seen from outside: a definition, and a sampler that follows a process by it.

    /proc/PID/smaps every few milliseconds ──► each mapping: malloc's, or not ──► the most that was resident at once

D1  malloc's memory is the anonymous resident memory ("Anonymous") of [heap] and of nameless private writable mappings,
    except: those the program mapped itself (VmFlags "dd": mapwatch.c), those that follow a file's mapping without a
    gap (its .bss), stacks of threads (a guard page of no access before them, and of the size that the C library
    gives), and the recorder's or the replayer's own.
D2  The same rule is used for the program and for its replay. A replay has no mappings of the program, and the
    replayer's own memory is a memfd, which is not anonymous.
D3  The process is stopped while smaps is read: the kernel walks it mapping by mapping, and a block that is moved by
    mremap meanwhile would be counted twice (jq's replay, 2026-11-21: 151 MiB instead of 77). How many samples there were stands
    beside each figure.
"""
import os
import re
import resource
import signal
import threading
import time

HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) *(.*)$")
EVERY_S = 0.002


def stack_bytes():
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return limit if limit != resource.RLIM_INFINITY else 2 << 20


def heap_bytes(text):
    """(malloc's bytes, all anonymous bytes) of the text of smaps (D1)."""
    heap = anonymous = 0
    start = end = before_end = 0
    perms = name = before_name = before_perms = ""
    inode = before_inode = 0
    size = 0
    counted = 0

    def is_malloc(flags):
        if name == "[heap]":
            return True
        if name or inode or perms[0:2] != "rw" or perms[3] != "p" or " dd" in flags:
            return False
        touches = before_end == start
        if touches and before_inode:
            return False
        if touches and before_perms.startswith("---") and end - start == stack_bytes():
            return False
        return True

    for line in text.splitlines():
        found = HEAD.match(line)
        if found:
            before_end, before_name, before_inode, before_perms = end, name, inode, perms
            start, end = int(found.group(1), 16), int(found.group(2), 16)
            perms, inode, name = found.group(3), int(found.group(4)), found.group(5)
        elif line.startswith("Anonymous:"):
            counted = int(line.split()[1]) * 1024
            anonymous += counted
        elif line.startswith("VmFlags:") and counted and is_malloc(line):
            heap += counted
    return heap, anonymous


class Sampler(threading.Thread):
    """Follows a process until it is gone or `stop` is called."""

    def __init__(self, pid, every_s=EVERY_S):
        super().__init__(daemon=True)
        self.pid, self.every_s = pid, every_s
        self.peak = self.samples = 0
        self.others = None
        self.over = threading.Event()
        self.start()

    def stopped(self):
        """Whether it stands still; False if it is gone."""
        os.kill(self.pid, signal.SIGSTOP)
        for _ in range(10000):
            with open(f"/proc/{self.pid}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
            if state in "Tt":
                return True
            if state in "ZX":
                return False
        return False

    def sample(self):
        if not self.stopped():
            return
        try:
            with open(f"/proc/{self.pid}/smaps") as file:
                heap, anonymous = heap_bytes(file.read())
        finally:
            os.kill(self.pid, signal.SIGCONT)
        if anonymous:
            self.samples += 1
            self.peak = max(self.peak, heap)
            self.others = min(anonymous - heap, anonymous if self.others is None else self.others)

    def run(self):
        while not self.over.wait(self.every_s):
            try:
                self.sample()
            except (OSError, ValueError):
                return

    def stop(self):
        self.over.set()
        self.join(timeout=10)
        return self.peak
