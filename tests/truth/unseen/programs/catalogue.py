"""A control: a catalogue in large dictionaries, which is read once and asked until the end."""
import dice


def read(items):
    by_number, by_name = {}, {}
    for number in range(items):
        name = "item %06d of the catalogue" % number
        by_number[number] = name
        by_name[name] = number
    return by_number, by_name


def main():
    by_number, by_name = read(60000)
    dice.mark("read")
    total = 0
    for _ in range(400000):
        total += by_name[by_number[dice.roll(60000)]]
    print(total)


main()
