"""Control: strings of any length, kept."""
import random

random.seed(1)
KEPT = [bytes(random.randrange(600, 3000)) for _ in range(8000)]
