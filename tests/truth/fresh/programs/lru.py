"""Control. A cache of the 600 pages used last, asked often and hit most of the time."""
import collections
import random

import marks

random.seed(6)


class Pages:
    def __init__(self, limit):
        self.limit, self.pages, self.hits = limit, collections.OrderedDict(), 0

    def get(self, number):
        if number in self.pages:
            self.hits += 1
            self.pages.move_to_end(number)
        else:
            self.pages[number] = bytes([number % 251]) * (12000 + number % 9000)
            if len(self.pages) > self.limit:
                self.pages.popitem(last=False)
        return self.pages[number]


pages = Pages(600)
total = 0
for turn in range(60000):
    number = random.randrange(550) if random.random() < 0.9 else random.randrange(20000)
    total += pages.get(number)[50]
print(total, pages.hits)
