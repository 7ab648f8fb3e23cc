"""Can the benches of this folder fail? Their rules on made-up input.

    smaps by hand ──► heap.heap_bytes        figures by hand ──► replayed.is_other_way
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import heap        # noqa: E402
import replayed    # noqa: E402


def mapping(start, end, perms, inode, name, anonymous_kb, flags):
    return (f"{start:x}-{end:x} {perms} 00000000 00:00 {inode}   {name}\nRss: {anonymous_kb} kB\n"
            f"Anonymous:  {anonymous_kb} kB\nVmFlags: {flags}\n")


STACK = heap.stack_bytes()
SMAPS = "".join([
    mapping(0x1000, 0x2000, "rw-p", 77, "/usr/bin/program", 4, "rd wr mr"),
    mapping(0x2000, 0x5000, "rw-p", 0, "", 8, "rd wr mr"),                        # its .bss
    mapping(0x9000, 0x20000, "rw-p", 0, "[heap]", 40, "rd wr mr"),
    mapping(0x100000, 0x200000, "rw-p", 0, "", 300, "rd wr mr"),                  # malloc's mmap
    mapping(0x300000, 0x400000, "rw-p", 0, "", 500, "rd wr mr dd"),               # the program's
    mapping(0x600000, 0x601000, "---p", 0, "", 0, "mr"),
    mapping(0x601000, 0x601000 + STACK, "rw-p", 0, "", 12, "rd wr mr"),           # a thread's stack
    mapping(0x70000000000, 0x70000001000, "rw-s", 5, "/memfd:skinflint-replay", 0, "rd wr sh"),
    mapping(0x7ff000000000, 0x7ff000010000, "rw-p", 0, "[stack]", 20, "rd wr mr gd"),
])


class Rules(unittest.TestCase):
    def test_malloc_s_memory_and_no_other(self):
        self.assertEqual(heap.heap_bytes(SMAPS), (340 * 1024, 884 * 1024))

    def test_each_exception_matters(self):
        self.assertEqual(heap.heap_bytes(SMAPS.replace(" dd", ""))[0], 840 * 1024)
        self.assertEqual(heap.heap_bytes(SMAPS.replace("---p", "rw-p"))[0], 352 * 1024)
        self.assertEqual(heap.heap_bytes(SMAPS.replace("00:00 77", "00:00 0"))[0], 348 * 1024)

    def test_the_other_way_round(self):
        self.assertTrue(replayed.is_other_way((100, 120), (110, 100)))
        self.assertFalse(replayed.is_other_way((100, 90), (110, 100)), "the same way")
        self.assertFalse(replayed.is_other_way((100, 120), (102, 100)), "a tie in the program")
        self.assertFalse(replayed.is_other_way((100, 102), (110, 100)), "a tie in the replay")


if __name__ == "__main__":
    unittest.main()
