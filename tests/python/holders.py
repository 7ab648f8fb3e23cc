"""Holders of memory in all ways in which Python calls Python, each predicted by hand.

Each way allocates COUNT blocks of a size of its own, on the line that ends with "# HOLD way". A bytearray of N bytes asks for
N + 1; blocks of more than 512 bytes are malloc's, whatever PYTHONMALLOC says. Prints a line for each way: its name, the size that
is asked for, and how many times.

Not here: what a recorder should make of it (faces/cli/tests/python).
"""

import asyncio
import contextlib
import ctypes
import functools
import os
import sys
import threading

COUNT = 40
held = []
ways = []


def way(name, bytes_asked, count=COUNT):
    ways.append((name, bytes_asked, count))


def plain():
    for _ in range(COUNT):
        held.append(bytearray(10_001))  # HOLD plain


def comprehended():
    held.append([bytearray(10_011) for _ in range(COUNT)])  # HOLD comprehended


def generated():
    for _ in range(COUNT):
        yield bytearray(10_021)  # HOLD generated


def delegated():
    yield from generated_inside()


def generated_inside():
    for _ in range(COUNT):
        yield bytearray(10_031)  # HOLD generated_inside


def key_of(item):
    held.append(bytearray(10_041))  # HOLD key_of
    return -item


class Store:
    held.append([bytearray(10_051) for _ in range(COUNT)])  # HOLD Store

    def __init__(self):
        self.rows = []

    def fill(self):
        for _ in range(COUNT):
            self.rows.append(bytearray(10_061))  # HOLD Store.fill

    def __getattr__(self, name):
        if name != "missing":
            raise AttributeError(name)
        held.append(bytearray(10_071))  # HOLD Store.__getattr__
        return 1

    def __lt__(self, other):
        held.append(bytearray(10_081))  # HOLD Store.__lt__
        return id(self) < id(other)

    def __del__(self):
        held.append(bytearray(10_091))  # HOLD Store.__del__


def deep(left):
    if left % (900 // COUNT) == 0 and left // (900 // COUNT) < COUNT:
        held.append(bytearray(10_101))  # HOLD deep
    if left:
        deep(left - 1)


def deep_in_c(left):
    held.append(bytearray(10_111))  # HOLD deep_in_c
    if left > 1:
        list(map(deep_in_c, [left - 1]))


def raises(left):
    if left == 0:
        raise ValueError(bytearray(10_121))  # HOLD raises
    raises(left - 1)


def catches():
    for _ in range(COUNT):
        try:
            raises(20)
        except ValueError as error:
            held.append((error.args, bytearray(10_131)))  # HOLD catches
        finally:
            held.append(bytearray(10_141))  # HOLD finally


@contextlib.contextmanager
def entered():
    held.append(bytearray(10_151))  # HOLD entered
    yield


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        held.append(bytearray(10_161))  # HOLD wrapper
        return function(*args)

    return wrapper


@decorated
def wrapped(extra):
    held.append((extra, bytearray(10_171)))  # HOLD wrapped


async def awaited(number):
    held.append(bytearray(10_181))  # HOLD awaited
    await asyncio.sleep(0)  # CLOCK: a sleep of nothing; the other tasks run meanwhile
    held.append(bytearray(10_191))  # HOLD awaited_later
    return number


async def many():
    return await asyncio.gather(*(awaited(n) for n in range(COUNT)))


def in_thread(barrier):
    barrier.wait()
    for _ in range(COUNT // 4):
        held.append(bytearray(10_201))  # HOLD in_thread


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
def compare(one, other):
    if len(compared) < COUNT:
        compared.append(bytearray(10_211))  # HOLD compare
    return one[0] - other[0]


compared = []


def without_lock(libc):
    for _ in range(COUNT):
        libc.malloc(10_221)  # HOLD without_lock


def from_c_thread_callback():
    held.append(bytearray(10_231))  # HOLD from_c_thread_callback
    return 0


def in_child():
    for _ in range(COUNT):
        held.append(bytearray(10_241))  # HOLD in_child


EXECUTED = "def made(n):\n    held = []\n    for _ in range(n):\n        held.append(bytearray(10_251))\n    return held\n"


def reused():
    """Frames and codes at one address, again and again: each is its own function."""
    for number in range(COUNT):
        space = {}
        text = "\n" * number + "def again(): return bytearray(10_261)\n"
        exec(compile(text, "again.py", "exec"), space)
        held.append(space["again"]())
        del space
    for number in range(COUNT):
        space = {}
        exec(f"def again_{number}(): return bytearray(10_271)\n", space)
        held.append(space.popitem()[1]())
        del space


def main():
    plain()
    way("plain", 10_002)
    comprehended()
    way("comprehended", 10_012)
    held.append(list(generated()))
    way("generated", 10_022)
    held.append(list(delegated()))
    way("generated_inside", 10_032)
    held.append(sorted(range(COUNT), key=key_of))
    way("key_of", 10_042)
    way("Store", 10_052)
    store = Store()
    store.fill()
    way("Store.fill", 10_062)
    for _ in range(COUNT):
        store.missing
    way("Store.__getattr__", 10_072)
    for _ in range(COUNT):
        max(store, store)
    way("Store.__lt__", 10_082)
    for _ in range(COUNT - 1):
        Store()
    held.append(store.rows)
    del store
    way("Store.__del__", 10_092)
    deep(900)
    way("deep", 10_102)
    deep_in_c(COUNT)
    way("deep_in_c", 10_112)
    catches()
    way("raises", 10_122)
    way("catches", 10_132)
    way("finally", 10_142)
    for _ in range(COUNT):
        with entered():
            pass
    way("entered", 10_152)
    for _ in range(COUNT):
        wrapped(None)
    way("wrapper", 10_162)
    way("wrapped", 10_172)
    asyncio.run(many())
    way("awaited", 10_182)
    way("awaited_later", 10_192)
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=in_thread, args=(barrier,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    way("in_thread", 10_202)
    libc = ctypes.CDLL(None)
    numbers = (ctypes.c_int * 64)(*range(64, 0, -1))
    libc.qsort(numbers, 64, ctypes.sizeof(ctypes.c_int), compare)
    way("compare", 10_212)
    libc.malloc.restype = ctypes.c_void_p
    without_lock(libc)
    way("without_lock", 10_221)
    callback = ctypes.CFUNCTYPE(ctypes.c_int)(from_c_thread_callback)
    for _ in range(COUNT):
        callback()
    way("from_c_thread_callback", 10_232)
    space = {}
    exec(compile(EXECUTED, "made.py", "exec"), space)
    held.append(space["made"](COUNT))
    reused()
    for name, size, count in ways:
        print(name, size, count)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        in_child()
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
