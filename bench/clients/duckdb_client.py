"""DuckDB over the same points, in a file of its own in the order of offer and time, which suits its blocks best."""

from pathlib import Path

import duckdb
from answering import cpu, serve

CONNECTION = None


def open_file(path, points):
    """Open the file, or make it from a CSV file ``offer_id,effective_at_ms,price_micro_usd_h``; its rows."""
    global CONNECTION
    if not Path(path).exists():
        unfinished = Path(path + ".unfinished")
        unfinished.unlink(missing_ok=True)
        connection = duckdb.connect(str(unfinished))
        connection.execute(
            "create table point as select * from read_csv(?, header=false, columns={'offer_id': 'integer', "
            "'effective_at_ms': 'bigint', 'price_micro_usd_h': 'bigint'})",
            [points],
        )
        connection.execute("create table offer as select distinct offer_id from point order by 1")
        connection.close()
        unfinished.rename(path)
    CONNECTION = duckdb.connect(path, read_only=True)
    return CONNECTION.execute("select count(*) from point").fetchone()[0]


def latest():
    """Price now of every offer."""
    return _asked(
        "select offer_id, arg_max(price_micro_usd_h, effective_at_ms) from point group by offer_id", [[]]
    )


def as_of(asked):
    """Price of one offer at one moment, for each pair of these."""
    query = (
        "select offer_id, arg_max(price_micro_usd_h, effective_at_ms) from point "
        "where offer_id = ? and effective_at_ms <= ? group by offer_id"
    )
    return _asked(query, asked)


def window(asked):
    """Price at the start and every change until the end, for each offer, start and end of these."""
    query = (
        "select effective_at_ms, price_micro_usd_h from point where offer_id = $1 and effective_at_ms < $3 and "
        "effective_at_ms >= coalesce((select max(effective_at_ms) from point where offer_id = $1 "
        "and effective_at_ms < $2), 0) order by effective_at_ms"
    )
    return _asked(query, asked)


def _asked(query, asked):
    seconds, found = cpu(lambda: [CONNECTION.execute(query, values).fetchall() for values in asked])
    return {"cpu_s": seconds, "found": found}


serve({"open": open_file, "latest": latest, "as_of": as_of, "window": window})
