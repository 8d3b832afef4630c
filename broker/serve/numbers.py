"""Whole numbers in a query. FastAPI itself would take ``1_3`` for 13."""

from typing import Annotated

from pydantic import BeforeValidator

from broker.core.whole import parse_whole

# GPUs of one instance, GiB of memory, micro-USD an hour: far more than there is, and far less than SQLite's 2^63.
GPUS_MAX = 10_000
GIB_MAX = 1_000_000
MICRO_USD_MAX = 10**15


def _read(given: object) -> object:
    return parse_whole(given) if isinstance(given, str) else given


Number = Annotated[int, BeforeValidator(_read)]
