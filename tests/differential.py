"""Reads CSV files with Python's csv and with DuckDB, and says what they see, as JSON.

    differential.py FOLDER   FOLDER/index.json: [{"file", "delimiter", "lone_returns"}], three columns a, b, c in every file
                             {file: {"python": {"rows", "stopped"}, "duckdb": {"rows", "refused"}}}
"""

import csv
import io
import json
import pathlib
import re
import sys

import duckdb

# Stands for a carriage return that is data: Python's csv ends a record at each.
RETURN = "\ue000"


def by_python(text, delimiter, lone_returns):
    if not lone_returns:
        text = re.sub("\r+(?!\r*\n)(?!\r*$)", lambda found: RETURN * len(found.group()), text)
    rows, stopped = [], None
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            if row:
                rows.append([field.replace(RETURN, "\r") for field in row])
    except csv.Error as error:
        stopped = str(error)
    return {"rows": rows[1:], "stopped": stopped}


def by_duckdb(connection, path, delimiter):
    query = """
        select * from read_csv(?, delim = ?, header = true, quote = '"', escape = '"', auto_detect = false,
            columns = {'a': 'varchar', 'b': 'varchar', 'c': 'varchar'}, ignore_errors = true, allow_quoted_nulls = false)
    """
    try:
        return {"rows": connection.execute(query, [str(path), delimiter]).fetchall(), "refused": None}
    except duckdb.Error as error:
        return {"rows": [], "refused": str(error).splitlines()[0]}


def main():
    folder = pathlib.Path(sys.argv[1])
    csv.field_size_limit(1 << 30)
    connection = duckdb.connect()
    seen = {}
    for entry in json.loads((folder / "index.json").read_text()):
        path = folder / entry["file"]
        text = path.read_bytes().decode("utf-8-sig")
        seen[entry["file"]] = {
            "python": by_python(text, entry["delimiter"], entry["lone_returns"]),
            "duckdb": by_duckdb(connection, path, entry["delimiter"]),
        }
    json.dump(seen, sys.stdout)


main()
