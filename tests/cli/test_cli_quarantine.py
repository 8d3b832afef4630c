"""`broker quarantine`: what nobody can decide on, what has been decided, and slips."""

import json
from dataclasses import replace

from broker.core.offer import RawQuote
from tests.unit.serve.conftest import OFFER


def doubt(daemon, offer=OFFER):
    daemon.history.quarantine(RawQuote(offer, "900", "USD", None, "s"), daemon.clock.now_ms(), "jumped")


def test_readings_that_nobody_can_decide_on_are_apart(daemon, cli):
    now_ms = daemon.clock.now_ms()
    new = replace(OFFER, zone="use1-az9", gpu="H900")
    daemon.history.quarantine(RawQuote(OFFER, "900", "USD", None, "s"), now_ms, "jumped")
    daemon.history.quarantine(RawQuote(new, "3", "USD", None, "s"), now_ms, "unknown GPU 'H900'")
    code, out, err = cli("quarantine", "list")
    assert (code, [line.split("\t")[0] for line in out.splitlines()]) == (0, [OFFER.key])
    assert err == "1 of GPUs not known here (H900), which no word makes a price; --all lists them\n"
    out = cli("quarantine", "list", "--all")[1]
    assert [line.split("\t")[0] for line in out.splitlines()] == [OFFER.key, new.key]
    items = json.loads(cli("quarantine", "list", "--json")[1])["items"]
    assert [(item["key"], item["gpu_known"]) for item in items] == [(OFFER.key, True), (new.key, False)]


def test_what_was_confirmed_a_moment_ago_is_told_as_such_and_no_other_offer_is_proposed(daemon, cli):
    doubt(daemon)
    doubt(daemon, replace(OFFER, zone="use1-az4"))
    assert cli("quarantine", "confirm", OFFER.key)[0] == 0
    code, _, err = cli("quarantine", "confirm", OFFER.key)
    said = f"error: nothing of {OFFER.key} is in quarantine: its price was confirmed, and is $900.00/h\n"
    assert (code, err) == (3, said)


def test_only_an_offer_that_nobody_knows_is_taken_for_a_slip(daemon, cli):
    other = replace(OFFER, zone="use1-az4")
    doubt(daemon, other)
    err = cli("quarantine", "confirm", OFFER.key)[2]
    assert err == f"error: nothing of {OFFER.key} is in quarantine: its price is $24.00/h\n"
    err = cli("quarantine", "confirm", other.key.replace("az4", "az44"))[2]
    assert f"did you mean {other.key}?" in err
    err = cli("quarantine", "drop", "gcp/us-central1-a/a3-highgpu-8g/spot")[2]
    assert "did you mean" not in err
    assert "`broker quarantine list` shows what is" in err


def test_who_drops_a_reading_is_told_that_the_next_poll_brings_it_back(daemon, cli):
    doubt(daemon)
    err = cli("quarantine", "drop", OFFER.key)[2]
    assert err == f"{OFFER.key}: 900 is forgotten; the next poll that reads it doubts it again\n"
