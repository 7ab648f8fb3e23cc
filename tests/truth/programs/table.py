"""Control: dictionaries and lists, as programs have them."""
KEPT = [{"id": i, "name": "row %d" % i, "tags": [i, i + 1]} for i in range(20000)]
