"""Thousands of daemons that die: what they would log is of no use, and takes longer than what they do."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.exhaustive.cases import calm


@pytest.fixture(autouse=True, scope="session")
def _silence() -> Iterator[None]:
    calm.cache_clear()  # mutation testing runs many sessions in one process, each with other code
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
