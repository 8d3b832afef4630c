"""`broker market`: feeds that are late, that are tried again, and readings that nobody can decide on."""

from dataclasses import replace

from broker.core.offer import RawQuote
from broker.store.history import Poll
from tests.unit.serve.conftest import OFFER


def test_a_feed_that_is_late_is_no_longer_ok_and_a_failed_one_says_when_it_is_tried_again(daemon, cli):
    now_ms = daemon.clock.now_ms()

    def last_poll():
        return cli("market")[1].splitlines()[0].split("\t")[4]

    daemon.history.record_poll(Poll("aws", now_ms - 1_200_000, 0, True, 1000, 7))
    assert last_poll() == "ok 20m ago, late: due every 5m"
    daemon.history.record_poll(Poll("aws", now_ms - 10_000, 0, False, error="denied"))
    daemon.next_polls_ms["aws"] = now_ms + 5_000
    assert last_poll() == "failed 10s ago, late: due every 5m, again in 5s: denied"
    daemon.history.record_poll(Poll("aws", now_ms - 1_000, 0, True, 1000, 7))
    assert last_poll() == "ok 1s ago"


def test_readings_that_nobody_can_decide_on_are_apart(daemon, cli):
    now_ms = daemon.clock.now_ms()
    new = replace(OFFER, zone="use1-az9", gpu="H900")
    daemon.history.record_poll(Poll("aws", now_ms, 0, True, 1000, 7))
    daemon.history.quarantine(RawQuote(OFFER, "900", "USD", None, "s"), now_ms, "jumped")
    daemon.history.quarantine(RawQuote(new, "3", "USD", None, "s"), now_ms, "unknown GPU 'H900'")
    (row,) = [line.split("\t") for line in cli("market")[1].splitlines()]
    assert (row[6], row[8]) == ("1", "1 of GPUs not known here")
