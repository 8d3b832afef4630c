"""Feeds in `broker doctor`, from a real history database."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core.offer import Market, Offer, RawQuote
from broker.core.ports import Check
from broker.serve.feeds import feed_checks
from broker.store.history import HistoryStore, Poll, PollKind

NOW = 1_800_000_000_000
OFFER = Offer("aws", "us-east-1", "use1-az6", "p5.4xlarge", Market.SPOT, "H100-SXM5-80GB", 1)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore.open(tmp_path / "history.db")
    yield store
    store.close()


def poll(ago_s: int, ok: bool = True, error: str = "", kind: PollKind = PollKind.PRICES) -> Poll:
    at_ms = NOW - ago_s * 1000
    return Poll("aws", at_ms, at_ms + 900, ok, 120 if ok else 0, 0, error, kind)


def checks(history: HistoryStore, *polls: Poll) -> list[Check]:
    for one in polls:
        history.record_poll(one)
    return [check for cloud, check in feed_checks(history, {"aws": 300}, NOW) if cloud == "aws"]


def test_a_feed_that_keeps_up(history: HistoryStore) -> None:
    history.quarantine(RawQuote(OFFER, "0", "USD", None, "aws:spot_history"), NOW, "the price is zero")
    assert checks(history, poll(360), poll(60)) == [
        Check("prices", True, "120 prices, 1m old, 1 of them in quarantine")
    ]


def test_readings_of_gpus_that_nobody_knows_are_counted_apart(history: HistoryStore) -> None:
    new = replace(OFFER, zone="use1-az9", gpu="H900")
    history.quarantine(RawQuote(new, "3", "USD", None, "aws:spot_history"), NOW, "unknown GPU 'H900'")
    assert checks(history, poll(60)) == [
        Check("prices", True, "120 prices, 1m old, 1 of GPUs not known here")
    ]


def test_a_poll_dated_ahead_of_the_clock_is_never_fresh(history: HistoryStore) -> None:
    ahead, *_ = checks(history, poll(-28 * 86_400), poll(100, ok=False, error="503"))
    assert ahead.ok is False
    assert ahead.detail.startswith("120 prices, 28d old")


def test_one_failed_poll_is_told_and_is_no_failure(history: HistoryStore) -> None:
    assert checks(history, poll(400), poll(100, ok=False, error="503")) == [
        Check("prices", True, "120 prices, 6m40s old; the last poll failed: 503")
    ]


def test_a_feed_that_has_stopped_fails_with_its_reason(history: HistoryStore) -> None:
    late, *_ = checks(history, poll(7200), poll(100, ok=False, error="the credentials have expired"))
    assert late.ok is False
    assert (
        late.detail == "120 prices, 2h old; due every 5m; the last poll failed: the credentials have expired"
    )


def test_a_cloud_never_read(history: HistoryStore) -> None:
    assert checks(history) == [Check("prices", None, "never read yet")]
    (failed,) = checks(history, poll(5, ok=False, error="no route"))
    assert failed == Check("prices", False, "never read; the last poll failed: no route")


def test_hints_have_their_own_line_and_never_fail_it(history: HistoryStore) -> None:
    _, hints = checks(history, poll(60), poll(58, kind=PollKind.AVAILABILITY))
    assert hints == Check("availability", True, "120 hints, 58s old")
    _, refused = checks(history, poll(20, ok=False, error="one a day", kind=PollKind.AVAILABILITY))
    assert (refused.ok, refused.detail) == (None, "not told 20s ago: one a day; prices do not need it")
    some = replace(poll(20, ok=False, error="one a day", kind=PollKind.AVAILABILITY), offers=7)
    _, partly = checks(history, some)
    assert (partly.ok, partly.detail) == (None, "7 hints, 20s old; others were not told: one a day")
