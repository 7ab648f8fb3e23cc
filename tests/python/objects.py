"""Small objects of Python's own allocator, each way predicted by hand.

A bytes object of N bytes asks for N + 33, a bytearray's buffer of N for N + 1, in every version from 3.6 on. Prints a line for
each way: its name, the size that is asked for, and how many of that size live at the end. Then the blocks in use by size class,
as the allocator itself counts them (if its functions are its own), and ends at once.

Not here: what a recorder should make of it (faces/cli/tests/python).
"""

import os
import sys
import threading

COUNT = 5000
held = []
ways = []


def way(name, bytes_asked, live):
    ways.append((name, bytes_asked, live))


def plain():
    text = b"x"
    for _ in range(COUNT):
        held.append(text * 167)  # HOLD plain
    way("plain", 200, COUNT)


def zeroed():
    for _ in range(COUNT):
        held.append(bytes(191))  # HOLD zeroed
    way("zeroed", 224, COUNT)


def half_released():
    text = b"y"
    mine = [text * 215 for _ in range(COUNT)]  # HOLD half_released
    held.append(mine[::2])
    del mine
    way("half_released", 248, (COUNT + 1) // 2)


def grown():
    """Each buffer grows inside of the arenas, and then out of them."""
    for _ in range(COUNT):
        buffer = bytearray(270)
        buffer += bytes(50)
        buffer += bytes(3000)  # HOLD grown
        held.append(buffer)


def shrunk():
    """A block of malloc's stays one, however small it becomes."""
    for _ in range(COUNT):
        buffer = bytearray(5000)
        del buffer[10:]
        held.append(buffer)


def threaded():
    def work():
        text = b"z"
        held.extend([text * 231 for _ in range(COUNT)])  # HOLD threaded

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    way("threaded", 264, 4 * COUNT)


def released():
    """Arenas fill and go back."""
    for _ in range(3):
        text = b"w"
        [text * 247 for _ in range(20 * COUNT)]  # HOLD released
    way("released", 280, 0)


def in_child():
    text = b"c"
    child = os.fork()
    if child == 0:
        held.append([text * 295 for _ in range(COUNT)])  # HOLD in_child
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def main():
    for each in (plain, zeroed, half_released, grown, shrunk, threaded, released):
        each()
    for line in ways:
        print(*line)
    if "fork" in sys.argv:
        in_child()
    if "end" in sys.argv:
        return
    sys.stdout.flush()
    sys._debugmallocstats()
    os._exit(0)


if __name__ == "__main__":
    main()
