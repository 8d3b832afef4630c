"""A whole daemon over an AWS of which only prices are read: what it shows, what it refuses, and when it polls again."""

import json
import re
import sqlite3

import pytest

from lab.broker_config import cloud_sections
from tests.process.deployment import Deployment

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]


def aws_without_an_image(deployment: Deployment) -> str:
    section = re.search(r"\[clouds\.aws\]\n(?:.+\n)+", cloud_sections(deployment.lab.info))
    assert section
    return re.sub(r"image_id = .*\n", "", section[0]).replace('poll_interval = "20s"', 'poll_interval = "1h"')


def has_failed(deployment: Deployment) -> bool:
    deployment.ready()
    try:
        return any(not ok for ok, _ in deployment.polls("aws"))
    except sqlite3.OperationalError:  # the database is still being made
        return False


def test_aws_without_an_image(fresh: Deployment) -> None:
    fresh.start_lab()
    text = fresh.config.read_text()
    fresh.config.write_text(
        re.sub(r"\[clouds\.aws\].*(?=\[policies\])", aws_without_an_image(fresh) + "\n", text, flags=re.S)
    )
    # The network is away at the start, and comes back: nobody waits an hour for prices.
    fresh.lab.fault("aws", "*", "down", count=None)
    fresh.spawn_daemon()
    fresh.wait_for("the first poll has failed", lambda: has_failed(fresh))
    fresh.login("alan", "operator")
    fresh.login("ada", "engineer")
    fresh.lab.clear()
    fresh.wait_for("prices", lambda: fresh.get("/prices", cloud="aws")["items"], limit_s=120)

    (feed,) = fresh.get("/market/polls")["items"]
    assert (feed["cloud"], feed["ok"], feed["prices_only"]) == ("aws", True, True)
    assert feed["next_at_ms"] > feed["last_at_ms"]

    doctor = fresh.broker("doctor", person="alan")
    assert doctor.code == 0, doctor.out
    assert re.search(r"\?\s+aws\s+aws: launches\s+prices only: no image_id is set", doctor.out), doctor.out

    asked = fresh.broker("market", "poll", "aws", "--json", person="alan")
    assert asked.code == 0, asked.err
    (poll,) = json.loads(asked.out)["items"]
    assert poll["ok"]
    assert poll["prices"] > 0
