# Control: byte arrays that grow as Python lets them grow.
all = [bytearray() for _ in range(300)]
for step in range(800):
    for one in all:
        one += b"some bytes, and a few more"
