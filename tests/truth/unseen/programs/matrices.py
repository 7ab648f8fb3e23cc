"""A control: rows of a matrix as arrays, each made at its full size; products of rows come and go."""
import array
import dice


def main():
    side = 900
    rows = [array.array("d", [0.0]) * side for _ in range(side)]
    for row in rows:
        for i in range(0, side, 3):
            row[i] = dice.roll(100)
    total = 0.0
    for i in range(side):
        a, b = rows[i], rows[side - 1 - i]
        product = array.array("d", [0.0]) * side
        for k in range(0, side, 2):
            product[k] = a[k] * b[k]
        total += sum(product)
    print(total)


main()
