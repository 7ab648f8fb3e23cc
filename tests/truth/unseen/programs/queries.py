"""A service compiles each query that it is sent and remembers all of them, though no query comes twice.
Mended: it remembers the last 64."""
import functools
import dice


@functools.lru_cache(maxsize=64 if dice.MENDED else None)
def compile_query(text):
    words = text.split(" ")
    return {"words": words, "plan": bytes(900), "cost": len(words)}


def answer(number):
    text = "select %d from orders where customer = %d" % (number, number * 7)
    return compile_query(text)["cost"]


def main():
    table = [bytes([i % 256]) * 2000 for i in range(4000)]
    total = 0
    for minute in range(1, 11):
        for number in range(900):
            total += answer(minute * 1000 + number) + table[number][5]
        dice.mark("minute %d" % minute)
    print(total)


main()
