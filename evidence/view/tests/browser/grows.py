"""A program to be looked at: it builds tables, keeps an index of them in SQLite, and drops four fifths again."""
import sqlite3
import time

index = sqlite3.connect(":memory:")
index.execute("create table words (word text primary key, times integer)")
tables = []
for number in range(200):
    tables.append({f"{number}/{key}": "x" * (key % 700) for key in range(900)})
    index.executemany("insert into words values (?, ?)", [(f"{number} {key}", key) for key in range(900)])
    time.sleep(0.05)  # CLOCK: how fast it grows; whoever looks at it waits for figures
    if number == 150:
        del tables[30:]
time.sleep(600)  # CLOCK: stays until it is killed
