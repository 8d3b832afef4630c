"""The history as a file: Parquet or CSV, by its name, a batch at a time, so that its size does not matter."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol, TextIO

from broker.core.errors import BrokerError, UsageError
from broker.core.offer import Quote
from broker.core.time import to_iso
from broker.store.ingest import OFFER_FIELDS
from broker.store.past_rows import COLUMNS, INTEGERS, OPTIONAL, TIMES
from broker.textfile import check_ordinary

# What the metadata of a Parquet file of ours says.
FORMAT_KEY, FORMAT = b"broker.format", b"price-points/1"
ROW_GROUP = 50_000
_NO_PYARROW = "Parquet needs pyarrow: pip install --constraint requirements.lock '.[parquet]' in the checkout, or name the file .csv"

_WRITES = count()
# Characters. A row of ours has some two hundred.
_LINE_MAX = 100_000

Row = dict[str, Any]


class Source(Protocol):
    """A file that is read.

    Attributes:
        ours: Written by `write`: what it says of when a price was known is a broker's word.
        unknown: Columns that mean nothing here.
    """

    ours: bool
    unknown: tuple[str, ...]

    def batches(self) -> Iterator[list[Row]]:
        """All rows, anew at each call."""


def write(path: Path, quotes: Iterable[Quote], exported_at_ms: int) -> int:
    """Write a file, whole or not at all; returns the number of rows.

    Raises:
        UsageError: the name has another ending, or pyarrow is not installed.
        BrokerError: it cannot be written.
    """
    put = {".parquet": _write_parquet, ".csv": _write_csv}.get(path.suffix.lower())
    if put is None:
        raise UsageError(f"{path}: what kind of file is this?", hint="name it .parquet or .csv")
    # Of its own: two may write to one name, and the last to end then replaces the other's, whole.
    partial = path.with_name(f".{path.name}.{os.getpid()}-{next(_WRITES)}.partial")
    try:
        count = put(partial, quotes, exported_at_ms)
        partial.replace(path)
    except OSError as error:
        raise BrokerError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def read(path: Path) -> Source:
    """Open a file.

    Raises:
        UsageError: there is none, it is no ordinary file, it is of neither kind, a column is missing, or pyarrow is not installed.
    """
    kinds: dict[str, Callable[[Path], Source]] = {".parquet": _ParquetSource, ".csv": _CsvSource}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise UsageError(f"{path}: what kind of file is this?", hint="name it .parquet or .csv")
    check_ordinary(path)  # a pipe would be waited for, and a device may never end
    with _told(path):
        return kind(path)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: it is not UTF-8 text (byte {error.start})") from None
    except csv.Error as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _check(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """The columns that mean nothing here.

    Raises:
        UsageError: one that is needed is missing, or one is there twice.
    """
    known = list(names)
    for place, name in enumerate(known, 1):
        if (first := known.index(name) + 1) < place:
            raise UsageError(
                f"{path}: the column {name} twice, at {first} and {place}",
                hint="take one of them out: which of them is meant?",
            )
    missing = [name for name in COLUMNS if name not in known and name not in OPTIONAL]
    if missing:
        raise UsageError(
            f"{path}: no column {', '.join(missing)}", hint=f"the columns are {', '.join(COLUMNS)}"
        )
    return tuple(name for name in known if name not in COLUMNS)


def _cells(quote: Quote) -> list[Any]:
    offer = quote.offer
    return [
        *(
            str(value) if name == "market" else value
            for name in OFFER_FIELDS
            for value in [getattr(offer, name)]
        ),
        quote.price_micro_usd_h,
        quote.effective_at_ms,
        quote.observed_at_ms,
        quote.source,
    ]


def _chunks(quotes: Iterable[Quote]) -> Iterator[list[Quote]]:
    source = iter(quotes)
    while chunk := list(islice(source, ROW_GROUP)):
        yield chunk


# -- CSV ------------------------------------------------------------------------------------------------------------------


def _write_csv(path: Path, quotes: Iterable[Quote], exported_at_ms: int) -> int:
    count = 0
    at = list(COLUMNS)
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for quote in quotes:
            count += 1
            cells = _cells(quote)
            for name in TIMES:
                cells[at.index(name)] = to_iso(cells[at.index(name)])
            out.writerow(cells)
        file.flush()
        os.fsync(file.fileno())
    return count


class _CsvSource:
    """A CSV has no place for a word of ours, so that nobody's `observed_at` is believed unasked."""

    ours = False

    def __init__(self, path: Path) -> None:
        self._path = path
        with open(path, encoding="utf-8-sig", newline="") as file:
            self.unknown = _check(path, csv.DictReader(_lines(file)).fieldnames or ())

    def batches(self) -> Iterator[list[Row]]:
        with _told(self._path), open(self._path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(_lines(file), restkey="", strict=True)
            while batch := [{**OPTIONAL, **_given(row)} for row in islice(rows, ROW_GROUP)]:
                yield batch


def _lines(file: TextIO) -> Iterator[str]:
    """A file that is no CSV may be one line, of any length."""
    for number, line in enumerate(iter(lambda: file.readline(_LINE_MAX + 1), ""), 1):
        if len(line) > _LINE_MAX:
            raise csv.Error(f"line {number} is longer than {_LINE_MAX} characters")
        yield line


def _given(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A cell that is left empty is as good as a column that is not there."""
    return {name: cell for name, cell in row.items() if not (cell in (None, "") and name in OPTIONAL)}


# -- Parquet --------------------------------------------------------------------------------------------------------------


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(_NO_PYARROW) from None
    return pyarrow


def _write_parquet(path: Path, quotes: Iterable[Quote], exported_at_ms: int) -> int:
    arrow = _pyarrow()
    kinds = {name: arrow.dictionary(arrow.int32(), arrow.string()) for name in COLUMNS}
    kinds |= dict.fromkeys(INTEGERS, arrow.int64()) | dict.fromkeys(TIMES, arrow.timestamp("ms", tz="UTC"))
    about = {FORMAT_KEY: FORMAT, b"broker.exported_at": to_iso(exported_at_ms).encode()}
    schema = arrow.schema(list(kinds.items()), metadata=about)
    count = 0
    with arrow.parquet.ParquetWriter(path, schema, compression="zstd") as out:
        for chunk in _chunks(quotes):
            columns = zip(*map(_cells, chunk), strict=True)
            arrays = [
                arrow.array(list(column), kinds[name]) for name, column in zip(kinds, columns, strict=True)
            ]
            out.write_batch(arrow.record_batch(arrays, schema=schema), row_group_size=ROW_GROUP)
            count += len(chunk)
    return count


class _ParquetSource:
    def __init__(self, path: Path) -> None:
        arrow = _pyarrow()
        self._path = path
        self._file = self._open(arrow)
        self.unknown = _check(path, self._file.schema_arrow.names)
        self.ours = (self._file.schema_arrow.metadata or {}).get(FORMAT_KEY) == FORMAT
        for name in TIMES:
            self._check_time(arrow, name)

    def _open(self, arrow: Any) -> Any:
        try:
            return arrow.parquet.ParquetFile(self._path)
        except arrow.ArrowInvalid as error:
            raise UsageError(f"{self._path}: not a Parquet file: {error}") from None

    def _check_time(self, arrow: Any, name: str) -> None:
        """A number has no unit, and a time without a zone is anybody's."""
        schema = self._file.schema_arrow
        kind = schema.field(name).type if name in schema.names else arrow.string()
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        is_moment = arrow.types.is_timestamp(kind) and kind.tz is not None
        if not (is_moment or arrow.types.is_string(kind) or arrow.types.is_large_string(kind)):
            hint = "write a timestamp with a time zone, or text: 2026-11-30T12:00:00Z"
            raise UsageError(f"{self._path}: {name} is {kind}", hint=hint)

    def batches(self) -> Iterator[list[Row]]:
        arrow = _pyarrow()
        wanted = [name for name in COLUMNS if name in self._file.schema_arrow.names]
        try:
            for batch in self._file.iter_batches(batch_size=ROW_GROUP, columns=wanted):
                columns = [_values(arrow, column) for column in batch.columns]
                yield [
                    {**OPTIONAL, **_given(dict(zip(wanted, row, strict=True)))}
                    for row in zip(*columns, strict=True)
                ]
        except (arrow.ArrowInvalid, OSError) as error:
            raise UsageError(f"cannot read {self._path}: {error}") from None


def _values(arrow: Any, column: Any) -> list[Any]:
    """Moments as milliseconds: making ten million datetimes takes a minute."""
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("ms", tz="UTC"), safe=False).cast(arrow.int64())
    return list(column.to_pylist())
