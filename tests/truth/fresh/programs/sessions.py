"""A server that keeps the body of each request in a table of sessions, and takes it out only if the client says goodbye, which
one in four does. Mended: a session ends with its request."""
import random

from marks import MENDED, mark

random.seed(1)
sessions = {}


def open_session(number):
    body = random.randbytes(3000 + random.randrange(5000))
    sessions[number] = body
    return body


def close_session(number, goodbye):
    if goodbye or MENDED:
        del sessions[number]


total = 0
for number in range(1, 3001):
    mark(f"request {number} begin")
    total += open_session(number)[100]
    close_session(number, number % 4 == 0)
    mark(f"request {number} end")
mark("served")
print(total)
