"""Holds 40,000 byte strings of 1,000 bytes, made by one function: 1,033 bytes of malloc each, by CPython's own layout.

    main ─► read_rows ─► 41,320,000 bytes
"""

import time


def read_rows(count):
    rows = []
    for _ in range(count):
        rows.append(bytes(1000))
    return rows


def main():
    rows = read_rows(40_000)
    # So that a reading of resident memory falls on all of them, on a busy machine too.
    time.sleep(0.5)
    print(sum(len(row) for row in rows))


main()
