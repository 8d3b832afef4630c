"""Errors of ``/api/v1``: problem documents, bodies and texts that are refused, failures that are ours."""

import asyncio
import errno
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.core.plain import to_plain
from broker.serve import problem
from broker.serve.body_limit import BODY_MAX_BYTES
from broker.store.access import PAUSED
from tests.unit.serve.calling import KEY, SUBMIT, call
from tests.unit.serve.conftest import SPEC


def test_errors_are_problem_documents(bench):
    for answer in (
        bench.client.get("/api/v1/nowhere"),
        bench.client.get("/api/v1/jobs"),
        call(bench, "GET", "/jobs?all=perhaps", headers=bench.token("viewer")),
    ):
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"status", "title", "code", "detail"} <= set(answer.json())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "body.spec: missing"),
        ({"spec": 5}, "body.spec: expected an object, got the number 5"),
        ({"spec": {"name": "t", "run": "x", "resources": 5}}, "body.spec.resources: expected an object, got the number 5"),
        ({"spec": to_plain(SPEC) | {"priority": "top"}}, "'top' is not one of urgent, high, normal, low, scavenger"),
        ({"spec": to_plain(SPEC) | {"budget": 3}}, "body.spec: not known here: budget"),
        ([], "body: expected an object, got a list"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_told_in_our_words(bench, body, said):
    answer = call(bench, "POST", "/jobs/check", body, bench.token("viewer"))
    assert (answer.status_code, answer.json()["code"]) == (422, "usage")
    assert said in answer.json()["detail"]


def test_a_body_is_not_read_without_bound(bench):
    engineer = bench.token("engineer")
    long = b'{"spec": "' + b"x" * BODY_MAX_BYTES + b'"}'
    for path in ("/api/v1/jobs", "/api/v1/jobs/check", "/api/v1/pause", "/api/v1/nowhere"):
        for content in (long, iter([long[:1000], long[1000:]])):  # with its length, and in chunks
            answer = bench.client.post(path, content=content, headers=engineer)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large"), path
            assert f"{BODY_MAX_BYTES} bytes" in answer.json()["detail"]
    fits = b'"' + b"x" * (BODY_MAX_BYTES - 2) + b'"'
    assert bench.client.post("/api/v1/jobs", content=fits, headers=engineer).status_code == 422
    sha256 = hashlib.sha256(long).hexdigest()
    answer = bench.client.put(f"/api/v1/sources/{sha256}", content=long, headers=engineer)
    assert answer.json()["size_bytes"] == len(long), "sources have a limit of their own"


def test_a_bug_of_ours_is_told_without_its_insides(bench, monkeypatch):
    heard = []
    monkeypatch.setattr(
        problem, "log", SimpleNamespace(error=lambda event, **keys: heard.append((event, keys)))
    )
    monkeypatch.setattr(type(bench.store), "read", lambda self: 1 / 0)
    answer = call(bench, "GET", "/jobs", headers=bench.token("viewer"))
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert [(event, keys["path"]) for event, keys in heard] == [("request.failed", "/api/v1/jobs")]


@pytest.mark.parametrize("number", [2**63, 10**23])
@pytest.mark.parametrize("path", ["logs?offset={}", "events?after={}"])
def test_numbers_beyond_every_log_are_refused(bench, number, path):
    bench.job()
    answer = bench.client.get(
        f"/api/v1/jobs/train-aaaaa/{path.format(number)}", headers=bench.token("viewer")
    )
    assert answer.status_code == 422


def test_a_full_disk_is_told_as_such(bench, monkeypatch):
    def full(self, *_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/broker/sources/x.partial")

    monkeypatch.setattr(Path, "open", full)
    sha256 = "0" * 64
    answer = bench.client.put(f"/api/v1/sources/{sha256}", content=b"x", headers=bench.token("engineer"))
    assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
    assert answer.json()["detail"] == "no room left for /var/lib/broker/sources/x.partial"


def test_a_client_that_dies_in_the_middle_of_a_request_is_no_failure_of_ours(bench, monkeypatch):
    heard = []
    log = SimpleNamespace(
        error=lambda event, **_: heard.append(event), info=lambda event, **_: heard.append(event)
    )
    monkeypatch.setattr(problem, "log", log)
    news = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive():
        return next(news, {"type": "http.disconnect"})

    async def send(_message):
        pass

    scope = {
        "type": "http", "method": "POST", "path": "/agent/v1/beat", "query_string": b"", "headers": [],
        "scheme": "https", "server": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip
    asyncio.run(bench.client.app(scope, receive, send))
    assert heard == ["request.left"]


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff", "a\0b"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs", lambda text: {"spec": SUBMIT["spec"] | {"run": text}}),
        ("/jobs", lambda text: {"spec": SUBMIT["spec"] | {"labels": {text: "x"}}}),
        ("/jobs", lambda text: {"spec": SUBMIT["spec"] | {"env": {"A": text}}}),
        ("/jobs/check", lambda text: {"spec": SUBMIT["spec"] | {"setup": text}}),
        ("/pause", lambda text: {"reason": text}),
        ("/report-only/clear", lambda text: {"reason": text}),
        ("/tokens", lambda text: {"role": "viewer", "name": text}),
        ("/audit/apply", lambda text: {"ids": [text]}),
    ],
)
def test_a_text_that_cannot_be_kept_is_refused_before_anything_happens(bench, path, body, text):
    operator = bench.token("operator")
    answer = bench.client.post(f"/api/v1{path}", content=json.dumps(body(text)), headers={**KEY, **operator})
    assert (answer.status_code, answer.json()["code"]) == (422, "usage"), answer.text
    assert "surrogate" in answer.json()["detail"]
    with bench.store.read() as tx:
        assert tx.jobs() == []
        assert not tx.switch(PAUSED)
    assert call(bench, "GET", "/jobs", headers=operator).status_code == 200


@pytest.mark.parametrize("raw", [b'"\xed\xa0\x80"', b"[" * 100_000])
def test_bytes_that_are_read_as_such_a_text_are_refused_too(bench, raw):
    headers = bench.token("operator") | {"Content-Type": "application/json"}
    answer = bench.client.post("/api/v1/pause", content=b'{"reason": ' + raw + b"}", headers=headers)
    assert answer.status_code == 422, answer.text


def test_any_other_text_is_kept(bench):
    assert (
        call(bench, "POST", "/pause", {"reason": "Schöne 🚀\n"}, bench.token("operator")).status_code == 204
    )
