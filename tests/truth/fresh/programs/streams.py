"""Forty downloads side by side; each chunk is appended to a bytes object. Mended: a bytearray."""
import random

from marks import MENDED

random.seed(2)


class Download:
    def __init__(self):
        self.data = bytearray() if MENDED else b""

    def feed(self, chunk):
        if MENDED:
            self.data.extend(chunk)
        else:
            self.data = self.data + chunk


downloads = [Download() for _ in range(40)]
for turn in range(250):
    for download in downloads:
        download.feed(random.randbytes(600 + turn % 200))
print(sum(download.data[len(download.data) // 2] for download in downloads))
