"""Each channel of a mixer has a buffer for a minute of sound, and plays sounds of a tenth of a second.
Mended: the buffer is made as long as the sound."""
import random

from marks import MENDED, mark

random.seed(5)
MINUTE = 60 * 16000


class Channel:
    def __init__(self):
        self.buffer = bytearray() if MENDED else bytearray(MINUTE)

    def play(self, sound):
        if len(self.buffer) < len(sound):
            self.buffer = bytearray(len(sound))
        self.buffer[: len(sound)] = sound


channels = [Channel() for _ in range(40)]
total = 0
for turn in range(2000):
    channel = random.choice(channels)
    channel.play(random.randbytes(1600 + random.randrange(400)))
    total += channel.buffer[turn % 1600]
mark("played")
print(total)
