"""Logs: a test that tries to leak a secret in every way it can think of."""

import io
import json
import logging

import pytest
import structlog

from broker import log

TOKEN = "brk_3uq7wnm2c5xkd6yhz4pvt0ab"
BEARER = "bk-abcdefghijklmnopqrstuvwxyz-0:s3cr3ts3cr3ts3cr3t"
AWS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBz\n-----END EC PRIVATE KEY-----"
SECRETS = (TOKEN, BEARER, "s3cr3ts3cr3t", AWS_KEY, SECRET_KEY, "MHcCAQEEIBz")


@pytest.fixture
def lines():
    stream = io.StringIO()
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    log.configure("debug", "json", stream)
    yield stream
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def leak_by_key(logger):
    logger.info(
        "token.created", token=TOKEN, secret=SECRET_KEY, Authorization=f"Bearer {BEARER}", api_key=AWS_KEY
    )


def leak_in_text(logger):
    logger.info(f"call failed: Authorization: Bearer {BEARER} with {TOKEN} and {AWS_KEY}")


def leak_nested(logger):
    logger.info(
        "node.create",
        request={"headers": {"authorization": BEARER}, "keys": [{"secret_key": SECRET_KEY}], "n": [TOKEN]},
    )


def leak_key_file(logger):
    logger.info("tls.made", pem=PEM, body=PEM.encode())


def leak_in_traceback(logger):
    try:
        raise RuntimeError(f"aws_secret_access_key={SECRET_KEY} Bearer {BEARER}")
    except RuntimeError:
        logger.exception("loop.failed")


def leak_in_object(logger):
    class Order:
        def __repr__(self):
            return f"Order(secret_key='{SECRET_KEY}', session_token={SECRET_KEY!r}, token={TOKEN!r})"

    logger.info("order.sent", order=Order(), url=f"https://s3/x?X-Amz-Signature={SECRET_KEY}&a=1")


def leak_through_stdlib(_logger):
    logging.getLogger("some.sdk").warning("headers %s", {"Authorization": f"Bearer {BEARER}", "x": TOKEN})


@pytest.mark.parametrize(
    "leak",
    [
        leak_by_key,
        leak_in_text,
        leak_nested,
        leak_key_file,
        leak_in_traceback,
        leak_in_object,
        leak_through_stdlib,
    ],
)
def test_no_secret_reaches_a_line(lines, leak):
    leak(structlog.get_logger("t"))
    text = lines.getvalue()
    assert log.REDACTED in text
    assert not [secret for secret in SECRETS if secret in text], text
    json.loads(text.splitlines()[-1])


def test_what_is_no_secret_stays(lines):
    structlog.get_logger("t").info(
        "node.created", node_token="bk-abcdefghijklmnopqrstuvwxyz-0", gpus=8, key="jobs/a/HEAD"
    )
    line = json.loads(lines.getvalue())
    assert line["node_token"].startswith("bk-")
    assert (line["gpus"], line["key"], line["event"], line["level"]) == (
        8,
        "jobs/a/HEAD",
        "node.created",
        "info",
    )
    assert line["timestamp"].endswith("Z")


def test_requests_of_the_vendors_clients_are_no_lines(lines):
    for name in (
        "azure.core.pipeline.policies.http_logging_policy",
        "azure.identity._internal",
        "msal.token",
    ):
        logging.getLogger(name).info("Request URL: 'https://login' Request headers: ...")
    logging.getLogger("azure.identity._internal.decorators").warning("get_token failed: HTTPSConnection(...)")
    assert lines.getvalue() == ""


def test_console_lines_are_redacted_too():
    stream = io.StringIO()
    handlers = logging.getLogger().handlers[:]
    log.configure("info", "console", stream)
    structlog.get_logger("t").info("login", token=TOKEN)
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()
    assert TOKEN not in stream.getvalue()
    assert "login" in stream.getvalue()


def test_a_tick_that_is_skipped_since_the_one_before_still_runs_is_no_line(lines):
    logging.getLogger("apscheduler.scheduler").warning("Execution of job skipped: maximum number reached")
    assert lines.getvalue() == ""
    logging.getLogger("apscheduler.executors.default").error("Job raised an exception")
    assert "raised" in lines.getvalue()
