"""The questions of a fleet on ClickHouse, as the library that has the whole engine in it (chdb).

`top --by function` is not asked: `unnest` of a list has another name there.

usage: clickhouse.py PATH/TO/skinflint-fleet
"""

import json
import os
import sys

import chdb
import questions
from chdb import session


def connect(fleet):
    # One engine in a process: a session sees the views of the one before.
    connection = session.Session()
    for statement in fleet.run("clickhouse").splitlines():
        assert statement.startswith("CREATE VIEW "), statement
        connection.query(statement.removesuffix(";").replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))

    def ask(statement):
        return [json.loads(line) for line in str(connection.query(statement, "JSONEachRow")).splitlines()]

    return ask


if __name__ == "__main__":
    kinds = ["stack", "service", "build", "host"]
    questions.at_all_ages(os.path.abspath(sys.argv[1]), connect, f"ClickHouse {chdb.engine_version}", kinds)
