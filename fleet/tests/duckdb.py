"""The questions of a fleet on DuckDB.

usage: duckdb.py PATH/TO/skinflint-fleet
"""

import os
import sys

import questions

# This file has the name of the module.
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
import duckdb  # noqa: E402


def connect(fleet):
    connection = duckdb.connect()
    connection.execute(fleet.run("duckdb"))

    def ask(statement):
        result = connection.execute(statement)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row)) for row in result.fetchall()]

    return ask


if __name__ == "__main__":
    kinds = ["stack", "function", "service", "build", "host"]
    questions.at_all_ages(os.path.abspath(sys.argv[1]), connect, f"DuckDB {duckdb.__version__}", kinds)
