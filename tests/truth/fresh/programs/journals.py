"""A journal file for each of 48 customers, opened with a buffer of a megabyte, and a few lines a day.
Mended: the usual buffer."""
import random
import tempfile

from marks import MENDED, mark

random.seed(8)


def open_journal():
    return tempfile.TemporaryFile(buffering=-1 if MENDED else 1 << 20)


journals = [open_journal() for _ in range(48)]
for turn in range(3000):
    journal = random.choice(journals)
    journal.write(f"{turn:08d} paid {random.randrange(100000)} and was thanked\n".encode())
mark("written")
total = sum(journal.tell() for journal in journals)
print(total)
