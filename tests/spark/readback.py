"""Reads the demos' lakes with Spark and with DuckDB, and compares what they see of every table.

    readback.py PROGRAM JARS PYTHON    PYTHON is the one that runs tests/readback.py

Prints a line a table, and exits with 1 when one differs.
"""

import decimal
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ByteType, DecimalType, IntegerType, LongType, ShortType

READBACK = pathlib.Path(__file__).resolve().parent.parent / "readback.py"


def exact(value):
    """As in tests/readback.py."""
    text = format(decimal.Decimal(value or 0), "f")
    return text.rstrip("0").rstrip(".") or "0" if "." in text else text


def by_spark(session, path):
    frame = session.read.format("delta").load(str(path))
    totals = [f.count(f.lit(1))]
    exact_columns = {}
    for field in frame.schema.fields:
        quoted = f.col("`" + field.name.replace("`", "``") + "`")
        exact_columns[field.name] = isinstance(field.dataType, (ByteType, ShortType, IntegerType, LongType, DecimalType))
        totals.append(f.count(quoted))
        totals.append(f.sum(quoted.cast("decimal(38,2)")) if exact_columns[field.name] else f.lit(None))
    rows, *found = frame.agg(*[total.alias(f"c{at}") for at, total in enumerate(totals)]).first()
    columns = {}
    for at, (name, is_exact) in enumerate(exact_columns.items()):
        columns[name] = [rows - found[2 * at], exact(found[2 * at + 1]) if is_exact else None]
    return {"rows": rows, "columns": columns}


def main():
    program, jars, python = sys.argv[1:]
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in pathlib.Path(jars).glob("*.jar")))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    different = compared = 0
    for words in (["demo"], ["demo", "--cdc"]):
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "ALLUVIUM_HOME": home + "/data"}
            subprocess.run([program, *words], check=True, env=environment, stdout=subprocess.DEVNULL)
            lake = pathlib.Path(home) / "data" / "lake"
            tables = sorted(log.parent.relative_to(lake).as_posix() for log in lake.rglob("_delta_log"))
            theirs = json.loads(subprocess.check_output([python, READBACK, "tables", lake, *tables]))
            for table in tables:
                seen, expected = by_spark(session, lake / table), theirs[table]["duckdb"]
                compared += 1
                if seen == expected:
                    print(f"ok    {table}: {seen['rows']} rows")
                else:
                    different += 1
                    print(f"DIFF  {table}\n  Spark  {json.dumps(seen)}\n  DuckDB {json.dumps(expected)}")
    session.stop()
    print(f"{compared} tables, {different} differ")
    sys.exit(1 if different or not compared else 0)


main()
