"""``/agent/v1`` over HTTP: who is believed, what is kept, what a node is told."""

import hashlib
import json
from dataclasses import replace

import pytest
import structlog

from broker.core.model import JobState, NodeState
from broker.core.spec import Source
from broker.serve import files
from broker.wire.bounds import MAX_NUMBER
from broker.wire.messages import (
    ORDER_EXIT,
    ORDER_WAIT,
    Beat,
    CommitNote,
    Hello,
    JobNote,
    ProgressNote,
    encode,
)
from tests.unit.serve.conftest import RATE, SPEC
from tests.unit.wire.test_bounds import BAD_TEXTS, HUGE_INTS, full, places, put

SECRET = "s" * 40


def hello(bench, node, secret=SECRET, **more):
    return bench.client.post("/agent/v1/hello", content=encode(Hello(node.token, secret, **more)))


def beat(bench, node, secret=SECRET, **fields):
    fields.setdefault("phase", "running")
    return bench.client.post(
        "/agent/v1/beat",
        content=encode(Beat(**fields)),
        headers={"Authorization": f"Bearer {node.token}:{secret}"},
    )


def row(bench, node):
    with bench.store.read() as tx:
        return tx.node(node.token)


def test_hello_is_idempotent_for_one_secret(bench):
    node = bench.node()
    first, again = hello(bench, node), hello(bench, node)
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json() == {"protocol": 1, "beat_s": 10 / RATE}
    assert row(bench, node).secret_sha256 == hashlib.sha256(SECRET.encode()).hexdigest()
    with bench.store.read() as tx:
        assert [e.kind for e in tx.events(job_id=node.job_id)] == ["node.hello"]
    assert bench.wakes == 2


def test_another_secret_is_refused_and_the_first_one_still_works(bench):
    node = bench.node()
    hello(bench, node)
    stolen = hello(bench, node, "t" * 40)
    assert (stolen.status_code, stolen.json()["code"]) == (403, "auth")
    assert beat(bench, node, "t" * 40, seq=1).status_code == 403
    assert beat(bench, node, seq=1).status_code == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"token": "bk-" + "z" * 26 + "-0"}, 403),
        ({"secret": "short"}, 422),
        ({"protocol_min": 9, "protocol_max": 9}, 422),
    ],
)
def test_a_hello_that_cannot_be(bench, change, status):
    message = replace(Hello(bench.node().token, SECRET), **change)
    assert bench.client.post("/agent/v1/hello", content=encode(message)).status_code == status


def test_a_node_that_is_gone_may_end(bench):
    node = bench.node(state=NodeState.GONE, secret_sha256=hashlib.sha256(SECRET.encode()).hexdigest())
    assert hello(bench, node).status_code == 410
    assert beat(bench, node, seq=1).json()["order"] == ORDER_EXIT
    assert row(bench, node).report == {}


def test_a_node_that_is_released_is_told_to_end_but_still_heard(bench):
    node = bench.node(state=NodeState.RELEASING, secret_sha256=hashlib.sha256(SECRET.encode()).hexdigest())
    answer = beat(bench, node, seq=1).json()
    assert answer["order"] == ORDER_EXIT
    assert answer["run_lease_s"] == 1800 / RATE
    assert row(bench, node).report["phase"] == "running"


def test_a_beat_is_kept_with_what_it_changes(bench):
    job = bench.job(state=JobState.RUNNING, generation=1)
    node = bench.node(job)
    hello(bench, node)
    bench.clock.advance(60)
    commit = CommitNote(1, 3, "manifests/3", "f" * 64, 300, 1000)
    probe = {"verdict": "accept", "reasons": ["8 of 8 GPUs"]}
    answer = beat(bench, node, seq=1, job=JobNote("running", 1), commit=commit, probe=probe)
    assert answer.json()["order"] == ORDER_WAIT
    beat(bench, node, seq=1, job=JobNote("exited", 1))  # repeated number: says nothing new
    with bench.store.read() as tx:
        kept = tx.job(job.id).commit
        kinds = [event.kind for event in tx.events(job_id=job.id)]
        reports = tx.probe_reports(node_token=node.token)
        seen = tx.node(node.token)
    assert (kept.seq, kept.at_ms) == (3, bench.clock.now_ms())
    assert kinds == ["node.hello", "probe.finished", "checkpoint.committed", "copy.running"]
    assert [report.verdict for report in reports] == ["accept"]
    assert (seen.seen_at_ms, seen.report["job"]["state"]) == (bench.clock.now_ms(), "running")


def test_a_loss_that_is_no_number_is_heard_and_later_beats_too(bench):
    job = bench.job(state=JobState.RUNNING, generation=1)
    node = bench.node(job)
    hello(bench, node)
    for seq, loss in ((1, float("nan")), (2, float("inf")), (3, 0.5)):
        answer = beat(
            bench, node, seq=seq, job=JobNote("running", 1), progress=ProgressNote(step=seq, loss=loss)
        )
        assert answer.status_code == 200, answer.text
    with bench.store.read() as tx:
        assert tx.job(job.id).progress.loss == 0.5


def test_an_agent_that_was_restarted_is_heard(bench):
    node = bench.node()
    hello(bench, node)
    beat(bench, node, seq=50)
    hello(bench, node)
    beat(bench, node, seq=1, phase="idle")
    assert row(bench, node).report["phase"] == "idle"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"seq": 1}', b'{"seq": "x", "phase": "y"}', b"\xff"])
def test_nonsense_is_refused_and_changes_nothing(bench, body):
    node = bench.node()
    hello(bench, node)
    headers = {"Authorization": f"Bearer {node.token}:{SECRET}"}
    assert bench.client.post("/agent/v1/beat", content=body, headers=headers).status_code == 422
    assert row(bench, node).report == {}


@pytest.mark.parametrize("header", ["", "Bearer", "Basic x:y", "Bearer token-alone"])
def test_without_credentials(bench, header):
    answer = bench.client.post(
        "/agent/v1/beat", content=encode(Beat(1, "idle")), headers={"Authorization": header}
    )
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_has_a_limit(bench):
    node = bench.node()
    assert bench.client.post("/agent/v1/hello", content=b" " * (2 << 20)).status_code == 413
    assert row(bench, node).secret_sha256 is None


def test_logs_are_appended_at_offsets_and_followed_by_people(bench):
    job = bench.job()
    old, new, other = (
        bench.node(job, attempt=1),
        bench.node(job, attempt=2),
        bench.node(job, rank=1, attempt=2),
    )
    for node in (old, new, other):
        hello(bench, node)

    def log(node, offset, data):
        headers = {"Authorization": f"Bearer {node.token}:{SECRET}"}
        return bench.client.post(f"/agent/v1/logs?offset={offset}", content=data, headers=headers).json()

    assert log(old, 0, b"one\n") == {"size": 4}
    assert log(old, 0, b"one\n") == {"size": 4}
    assert log(new, 0, b"two\n") == {"size": 4}
    assert log(other, 0, b"rank one\n") == {"size": 9}
    viewer = bench.token("viewer")
    answer = bench.client.get(f"/api/v1/jobs/{job.id}/logs", headers=viewer)
    place = "aws/use1-az6/p5.48xlarge/spot"
    assert answer.text == f"--- attempt 1 on {place} ---\none\n--- attempt 2 on {place} ---\ntwo\n"
    assert answer.headers["X-Job-State"] == "queued"
    tail = bench.client.get(f"/api/v1/jobs/{job.id}/logs?offset={len(answer.content)}", headers=viewer)
    assert tail.content == b""
    rank = bench.client.get(f"/api/v1/jobs/{job.id}/logs?node={other.token}", headers=viewer)
    assert rank.text == "rank one\n"
    assert bench.client.get(f"/api/v1/jobs/{job.id}/logs?node=../state.db", headers=viewer).status_code == 422


def test_a_node_gets_the_source_of_its_own_job_only(bench):
    content = b"tarball"
    sha256 = hashlib.sha256(content).hexdigest()
    engineer = bench.token("engineer")
    assert bench.client.put(f"/api/v1/sources/{sha256}", content=content, headers=engineer).status_code == 200
    mine = replace(bench.job(), spec=replace(SPEC, source=Source(sha256, len(content))))
    with bench.store.write() as tx:
        tx.save(mine)
    node, stranger = bench.node(mine), bench.node(bench.job("other-bbbbb"), attempt=3)
    for each in (node, stranger):
        hello(bench, each)
    path = f"/agent/v1/source/{sha256}"
    assert (
        bench.client.get(path, headers={"Authorization": f"Bearer {node.token}:{SECRET}"}).content == content
    )
    assert (
        bench.client.get(path, headers={"Authorization": f"Bearer {stranger.token}:{SECRET}"}).status_code
        == 404
    )
    assert bench.client.get(path).status_code == 401


def test_the_agent_itself_is_public(bench):
    answer = bench.client.get("/agent/v1/agent.pyz")
    assert answer.content == b"PK agent"
    assert answer.headers["X-Agent-SHA256"] == "a" * 64


def test_a_node_that_boots_across_an_upgrade_gets_the_agent_it_was_promised(bench):
    folder = bench.services.agent_dir
    before = files.keep_agent(folder, b"PK agent of the release before")
    answer = bench.client.get("/agent/v1/agent.pyz", params={"sha256": before})
    assert answer.content == b"PK agent of the release before"
    assert answer.headers["X-Agent-SHA256"] == before
    assert bench.client.get("/agent/v1/agent.pyz", params={"sha256": "0" * 64}).status_code == 404
    assert bench.client.get("/agent/v1/agent.pyz", params={"sha256": "../tls/key"}).status_code == 422
    for number in range(files.AGENTS_KEPT - 1):
        files.keep_agent(folder, f"release {number}".encode())
    again = files.keep_agent(folder, b"PK agent of the release before")
    assert again == before, "rolled back"
    files.keep_agent(folder, b"one more")
    assert files.agent_file(folder, before).exists()
    assert len(list(folder.iterdir())) == files.AGENTS_KEPT


def tell(bench, node, document):
    """A beat as any node may write it."""
    return bench.client.post(
        "/agent/v1/beat",
        content=json.dumps(document),
        headers={"Authorization": f"Bearer {node.token}:{SECRET}"},
    )


def readable(bench):
    """Everything that a beat reaches can be read and sent."""
    viewer = bench.token("viewer")
    for path in ("jobs", "jobs/train-aaaaa", "jobs/train-aaaaa/events", "nodes"):
        assert bench.client.get(f"/api/v1/{path}", headers=viewer).status_code == 200, path
    return True


@pytest.mark.parametrize(
    "path", [pytest.param(place[0], id=".".join(map(str, place[0]))) for place in places(Beat)]
)
def test_no_field_of_a_beat_makes_rows_that_cannot_be_kept_or_read(bench, path):
    job = bench.job(state=JobState.RUNNING, generation=7)
    node = bench.node(job)
    hello(bench, node)
    statuses = set()
    for seq, value in enumerate([*HUGE_INTS, *BAD_TEXTS, [[[]]], float("nan"), float("inf"), None], start=1):
        document = full(Beat) | {"seq": seq}
        put(document, path, value)
        statuses.add(tell(bench, node, document).status_code)
    assert statuses <= {200, 422}
    assert tell(bench, node, full(Beat) | {"seq": 100}).status_code == 200, "the node is heard again"
    assert readable(bench)


def test_a_step_out_of_bounds_is_no_step_and_the_rest_of_the_beat_is_heard(bench):
    job = bench.job(state=JobState.RUNNING, generation=7)
    node = bench.node(job)
    hello(bench, node)
    document = full(Beat)
    for note in (document["progress"], document["commit"], document["job"]["restore"]):
        note["step"] = 10**30
    document["progress"]["metrics"] = {"\ud800": 2.0, "val": 1e400}
    assert tell(bench, node, document).status_code == 200
    with bench.store.read() as tx:
        heard = tx.job(job.id)
    assert (heard.progress.step, heard.progress.loss, heard.progress.metrics) == (
        None,
        1.5,
        {"\ufffd": 2.0, "val": float("inf")},
    )
    assert (heard.commit.seq, heard.commit.step) == (7, None)


def test_the_largest_numbers_that_are_allowed_are_kept_and_read(bench):
    job = bench.job(state=JobState.RUNNING, generation=MAX_NUMBER)
    node = bench.node(job)
    hello(bench, node)
    document = full(Beat)
    for path, kind, _ in places(Beat):
        if kind is int:
            put(document, path, MAX_NUMBER)
        elif kind is float:
            put(document, path, 1e15)
    document["progress"]["steps_per_s"] = 1e-300
    assert tell(bench, node, document).status_code == 200
    with bench.store.write() as tx:
        placement = tx.placement(node.placement_id)
        tx.save(replace(placement, last_step=MAX_NUMBER, resumed_step=MAX_NUMBER, resumed_seq=MAX_NUMBER))
    with bench.store.read() as tx:
        assert tx.job(job.id).commit.step == tx.job(job.id).progress.total_steps == MAX_NUMBER
        assert tx.job(job.id).progress.steps_per_s is None, "thirty years a step is no speed"
        assert tx.placement(node.placement_id).last_step == MAX_NUMBER
    assert readable(bench)


def test_a_refused_beat_says_which_field_and_is_logged_once_a_node(bench):
    node = bench.node()
    hello(bench, node)
    with structlog.testing.capture_logs() as logs:
        answers = [tell(bench, node, full(Beat) | {"seq": 2**60}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [422] * 3
    assert "Beat.seq" in answers[0].json()["detail"]
    assert [line["node"] for line in logs if line["event"] == "beat.refused"] == [node.token]


def test_a_stored_report_out_of_bounds_does_not_mute_its_node(bench):
    node = bench.node()
    hello(bench, node)
    with bench.store.write() as tx:
        tx.save(replace(tx.node(node.token), report=full(Beat) | {"seq": 2**70}))
    assert tell(bench, node, full(Beat) | {"seq": 1}).status_code == 200
    assert row(bench, node).report["seq"] == 1


@pytest.mark.parametrize(
    "change", [{"protocol_max": 10**400}, {"secret": "\ud800" * 20}, {"facts": {"\0": 10**400}}]
)
def test_a_hello_with_nonsense_is_no_failure_of_ours(bench, change):
    node = bench.node()
    document = {"token": node.token, "secret": SECRET} | change
    answer = bench.client.post("/agent/v1/hello", content=json.dumps(document))
    assert answer.status_code in (200, 422)
