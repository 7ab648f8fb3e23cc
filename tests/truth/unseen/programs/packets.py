"""Packets of a capture are looked at; each is cut out of it as a bytearray, which copies it.
Mended: a memoryview, which cuts without a copy."""
import dice


def capture(packets):
    sizes = [700 + number * 37 % 800 for number in range(packets)]
    out = bytearray(range(256)) * ((sum(sizes) + 4 * packets) // 256)
    at = 0
    for size in sizes:
        out[at:at + 4] = size.to_bytes(4, "big")
        at += 4 + size
    return out


def packets_of(data):
    data = memoryview(data) if dice.MENDED else data
    at = 0
    while at + 2000 < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        yield data[at + 4:at + 4 + size]
        at += 4 + size


def main():
    data = capture(8000)
    total = 0
    for wanted in range(6):
        for packet in packets_of(data):
            total += packet[wanted] * len(packet)
    print(total)


main()
