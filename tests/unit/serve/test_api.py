"""``/api/v1`` over HTTP: who may do what, once-only submission, what is shown and what is hidden."""

import asyncio
import errno
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.core.audit import Act, Discrepancy, Kind
from broker.core.model import Decision, DecisionKind, JobState, NodeState, PlacementState, Progress
from broker.core.plain import to_plain
from broker.core.time import to_iso
from broker.serve import problem
from broker.serve.body_limit import BODY_MAX_BYTES
from broker.serve.services import Health
from broker.store.access import PAUSED, REPORT_ONLY
from broker.store.history import Poll
from tests.unit.serve.conftest import OFFER, SPEC

KEY = {"Idempotency-Key": "key-00000001"}
SUBMIT = {"spec": to_plain(SPEC)}

# method, path, body, who is the lowest that may
TABLE = [
    ("GET", "/whoami", None, "viewer"),
    ("GET", "/jobs", None, "viewer"),
    ("GET", "/jobs/train-aaaaa", None, "viewer"),
    ("GET", "/jobs/train-aaaaa/logs", None, "viewer"),
    ("GET", "/jobs/train-aaaaa/decisions", None, "viewer"),
    ("GET", "/jobs/train-aaaaa/events", None, "viewer"),
    ("POST", "/jobs/check", SUBMIT, "viewer"),
    ("GET", "/prices", None, "viewer"),
    ("GET", "/prices/history?gpu=H100", None, "viewer"),
    ("GET", "/market/polls", None, "viewer"),
    ("GET", "/quarantine", None, "viewer"),
    ("POST", "/quarantine/confirm", {"offer": "aws/a/b/spot"}, "operator"),
    ("POST", "/quarantine/drop", {"offer": "aws/a/b/spot"}, "operator"),
    ("GET", "/nodes", None, "viewer"),
    ("GET", "/nodes/unowned", None, "viewer"),
    ("GET", "/placements", None, "viewer"),
    ("GET", "/placements/train-aaaaa.1/probes", None, "viewer"),
    ("GET", "/ledger", None, "viewer"),
    ("GET", "/policies", None, "viewer"),
    ("POST", "/jobs", SUBMIT, "engineer"),
    ("POST", "/jobs/train-aaaaa/cancel", None, "engineer"),
    ("PUT", "/sources/" + "0" * 64, None, "engineer"),
    ("POST", "/policies/reload", None, "author"),
    ("POST", "/pause", {"reason": "x"}, "operator"),
    ("POST", "/resume", None, "operator"),
    ("POST", "/report-only/clear", {"reason": "x"}, "operator"),
    ("GET", "/tokens", None, "operator"),
    ("POST", "/tokens", {"role": "viewer", "name": "new"}, "operator"),
    ("GET", "/doctor", None, "operator"),
    ("GET", "/audit", None, "operator"),
    ("POST", "/audit/apply", {"ids": []}, "operator"),
    ("DELETE", "/tokens/viewer-default", None, "operator"),
]
ROLES = ["viewer", "engineer", "author", "operator"]


def call(bench, method, path, body=None, headers=None):
    return bench.client.request(method, f"/api/v1{path}", json=body, headers={**KEY, **(headers or {})})


def test_roles(bench):
    bench.node()
    tokens = {role: bench.token(role) for role in ROLES}
    for method, path, body, lowest in TABLE:
        where = f"{method} {path}"
        assert call(bench, method, path, body).status_code == 401, where
        for role in ROLES[: ROLES.index(lowest)]:
            answer = call(bench, method, path, body, tokens[role])
            assert (answer.status_code, answer.json()["code"]) == (403, "auth"), (where, role)
            assert answer.json()["exit_code"] == 4
        # The roles above cover the lowest; acting once more would meet its own effect.
        answer = call(bench, method, path, body, tokens[lowest])
        assert answer.status_code not in (401, 403, 500), (where, answer.text)


def test_every_route_is_in_the_table(bench):
    known = {
        (method.upper(), path)
        for path, methods in bench.client.get("/api/v1/openapi.json").json()["paths"].items()
        for method in methods
        if path.startswith("/api/v1")
    }
    tested = {(method, len(path.split("/")), path.split("/")[1]) for method, path, _, _ in TABLE}
    missing = {
        (method, path)
        for method, path in known
        if (method, len(path.split("/")) - 2, path.split("/")[3]) not in tested and path != "/api/v1/events"
    }
    assert not missing


def test_a_revoked_token_is_no_token(bench):
    viewer, operator = bench.token("viewer", "bob"), bench.token("operator")
    assert call(bench, "GET", "/whoami", headers=viewer).json()["name"] == "bob"
    assert call(bench, "DELETE", "/tokens/bob", headers=operator).status_code == 200
    assert call(bench, "GET", "/whoami", headers=viewer).status_code == 401
    assert call(bench, "GET", "/whoami", headers={"Authorization": "Bearer brk_guess"}).status_code == 401


def test_the_last_operator_cannot_lock_everybody_out(bench):
    operator = bench.token("operator", "only")
    assert call(bench, "DELETE", "/tokens/only", headers=operator).status_code == 422


def test_a_new_token_works_and_only_its_hash_is_kept(bench):
    operator = bench.token("operator")
    body = {"role": "engineer", "name": "ci", "project_id": "vision"}
    made = call(bench, "POST", "/tokens", body, operator).json()
    me = call(bench, "GET", "/whoami", headers={"Authorization": f"Bearer {made['token']}"}).json()
    assert (me["name"], me["role"], me["project_id"]) == ("ci", "engineer", "vision")
    assert made["token"] not in call(bench, "GET", "/tokens", headers=operator).text
    with bench.store.read() as tx:
        assert made["token"] not in str(tx.tokens())
    wrong = call(bench, "POST", "/tokens", {"role": "king"}, operator)
    assert (wrong.status_code, wrong.json()["hint"]) == (422, "roles: viewer, engineer, author, operator")


def test_submission_happens_once_for_a_key(bench):
    engineer = bench.token("engineer")
    first = call(bench, "POST", "/jobs", SUBMIT, engineer)
    again = call(bench, "POST", "/jobs", SUBMIT, engineer)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = call(bench, "POST", "/jobs", {"spec": to_plain(replace(SPEC, run="python other.py"))}, engineer)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    with bench.store.read() as tx:
        assert len(tx.jobs()) == 1
    assert bench.client.post("/api/v1/jobs", json=SUBMIT, headers=engineer).status_code == 422


def test_a_policy_may_be_named_by_the_roles_that_it_lists_and_a_job_taken_in_keeps_it(bench):
    file = bench.services.policies.folder / "night.yaml"
    file.write_text("policy: night\nselectable_by: [author, operator]\n")
    bench.services.policies.reload()
    named = {"spec": to_plain(replace(SPEC, policy="night"))}
    for role, path in (("engineer", "/jobs"), ("engineer", "/jobs/check"), ("viewer", "/jobs/check")):
        answer = call(bench, "POST", path, named, bench.token(role, f"{role} at {path}"))
        assert (answer.status_code, answer.json()["code"]) == (403, "auth")
        assert answer.json()["detail"] == (
            f"policy: night may be chosen by author and operator, and your role is {role}; "
            "leave policy out, and what matches the job decides"
        )
    author = bench.token("author")
    job_id = call(bench, "POST", "/jobs", named, author).json()["id"]
    file.write_text("policy: night\nselectable_by: []\n")
    bench.services.policies.reload()
    assert call(bench, "POST", "/jobs/check", named, author).status_code == 403
    with bench.store.read() as tx:
        job = tx.job(job_id)
    assert bench.services.policies.select(job.spec, job.project_id).name == "night"


def test_a_job_with_a_source_needs_its_upload(bench):
    engineer = bench.token("engineer")
    spec = to_plain(SPEC) | {"source": {"sha256": "0" * 64, "size_bytes": 3}}
    answer = call(bench, "POST", "/jobs", {"spec": spec}, engineer)
    assert (answer.status_code, answer.json()["code"]) == (422, "usage")
    assert "PUT it" in answer.json()["hint"]


@pytest.mark.parametrize(
    "change",
    [{"name": "No Such Name!"}, {"run": " "}, {"resources": {"gpus": []}}, {"env": {"BROKER_X": "1"}}],
)
def test_a_spec_that_no_file_could_give_is_refused(bench, change):
    engineer = bench.token("engineer")
    assert call(bench, "POST", "/jobs", {"spec": to_plain(SPEC) | change}, engineer).status_code == 422


def test_what_a_job_asks_for_and_we_do_not_know_is_refused(bench):
    spec = to_plain(SPEC) | {"budget": 3}
    spec["resources"] |= {"gpus": [{"type": "H100", "cuont": 8}]}
    answer = call(bench, "POST", "/jobs", {"spec": spec}, bench.token("engineer"))
    assert answer.status_code == 422
    assert "not known here: resources.gpus.0.cuont, budget" in answer.json()["detail"]


def test_a_project_sees_its_own(bench):
    ours = bench.job("train-aaaaa")
    theirs = bench.job("train-bbbbb", project_id="vision")
    bench.node(ours, attempt=1)
    bench.node(theirs, attempt=2)
    viewer, operator = bench.token("viewer"), bench.token("operator")
    engineer = bench.token("engineer", project="vision")
    for path in ("/jobs", "/nodes", "/placements"):
        assert {
            item["project_id"] if "project_id" in item else item["job_id"]
            for item in call(bench, "GET", path, headers=viewer).json()["items"]
        } <= {"default", "train-aaaaa"}
        assert len(call(bench, "GET", path, headers=operator).json()["items"]) == 2
    assert call(bench, "GET", "/jobs/train-bbbbb", headers=viewer).status_code == 404
    assert call(bench, "GET", "/ledger?job=train-bbbbb", headers=viewer).status_code == 404
    assert call(bench, "POST", "/jobs/train-aaaaa/cancel", headers=engineer).status_code == 404
    assert call(bench, "POST", "/jobs/train-bbbbb/cancel", headers=engineer).json()["state"] == "cancelling"


def test_a_name_means_the_newest_job_of_that_name(bench):
    viewer = bench.token("viewer")
    bench.job("train-aaaaa", state=JobState.RUNNING)
    bench.clock.advance(60)
    bench.job("train-bbbbb", state=JobState.FAILED)
    assert call(bench, "GET", "/jobs/train", headers=viewer).json()["job"]["id"] == "train-aaaaa"
    answer = call(bench, "GET", "/jobs/trian", headers=viewer)
    assert (answer.status_code, answer.json()["exit_code"]) == (404, 3)


def test_a_name_that_several_live_jobs_share_ends_none_of_them(bench):
    engineer = bench.token("engineer")
    for end in ("aaaaa", "bbbbb", "ccccc"):
        bench.job(f"train-{end}", state=JobState.RUNNING)
    bench.job("train-ddddd", state=JobState.SUCCEEDED)
    answer = call(bench, "POST", "/jobs/train/cancel", headers=engineer)
    assert (answer.status_code, answer.json()["exit_code"]) == (409, 5)
    assert "3 jobs are called train: train-aaaaa, train-bbbbb, train-ccccc; give the id" in answer.text
    for job_id in ("train-ccccc", "train-aaaaa"):
        assert call(bench, "POST", f"/jobs/{job_id}/cancel", headers=engineer).status_code == 200
    # Those two are on their way out: the name leaves no choice any more.
    assert call(bench, "POST", "/jobs/train/cancel", headers=engineer).json()["id"] == "train-bbbbb"
    assert call(bench, "POST", "/jobs/train/cancel", headers=engineer).status_code == 200


def test_silence_is_told_with_what_comes_next(bench):
    viewer = bench.token("viewer")
    job = bench.job(state=JobState.RUNNING, reason="trains on aws/p5", active_placement_id="train-aaaaa.1")
    seen_ms = bench.clock.now_ms() - 240_000

    def reasons():
        line, shown = (
            call(bench, "GET", path, headers=viewer).json() for path in ("/jobs", "/jobs/train-aaaaa")
        )
        (found,) = {line["items"][0]["reason"], shown["job"]["reason"]}
        return found

    bench.node(job, state=NodeState.RUNNING, seen_at_ms=seen_ms)
    assert reasons() == "trains on aws/p5"
    bench.node(job, state=NodeState.UNREACHABLE, seen_at_ms=seen_ms)
    since, until = (to_iso(at_ms // 1000 * 1000) for at_ms in (seen_ms, seen_ms + 1_800_000))
    assert reasons().startswith(f"no word from its node since {since}: the cloud is asked")
    assert reasons().endswith(f"or at {until}"), "when its run lease has run out"
    bench.node(job, rank=1, state=NodeState.RUNNING, seen_at_ms=seen_ms + 1000)
    assert reasons().startswith(f"no word from 1 of its 2 nodes since {since}")
    with bench.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, by="test")
    assert reasons().endswith("nothing follows while report-only is latched")
    with bench.store.write() as tx:
        tx.save(replace(tx.job(job.id), active_placement_id=None, reason="queued again"))
    assert reasons() == "queued again", "of a placement that is given up nothing is said"


def test_cancelling_what_is_over_is_a_conflict(bench):
    bench.job(state=JobState.SUCCEEDED)
    assert call(bench, "POST", "/jobs/train/cancel", headers=bench.token("engineer")).status_code == 409


def test_environment_values_are_never_shown(bench):
    engineer = bench.token("engineer")
    submitted = call(bench, "POST", "/jobs", SUBMIT, engineer)
    shown = call(bench, "GET", f"/jobs/{submitted.json()['id']}", headers=engineer)
    assert "k3y" not in submitted.text + shown.text
    assert shown.json()["job"]["spec"]["env"] == {"WANDB_API_KEY": "(hidden)"}


def test_a_loss_that_is_no_number_is_null(bench):
    job = bench.job(progress=Progress(at_ms=1, step=3, loss=float("nan")))
    answer = call(bench, "GET", f"/jobs/{job.id}", headers=bench.token("viewer"))
    assert answer.json()["job"]["progress"]["loss"] is None


def test_prices_are_filtered_and_sorted_by_gpu(bench):
    viewer = bench.token("viewer")
    items = call(bench, "GET", "/prices", headers=viewer).json()["items"]
    assert [item["key"] for item in items] == ["local/here/box/owned", OFFER.key]
    assert (items[1]["age_s"], items[0]["note"]) == (30, "newest reading in quarantine: zero price")
    for query, count in (
        ("gpu=h100", 1),
        ("gpu=H100-SXM5-80GB&count=8", 1),
        ("count=3", 0),
        ("market=owned", 1),
        ("cloud=gcp", 0),
    ):
        assert len(call(bench, "GET", f"/prices?{query}", headers=viewer).json()["items"]) == count, query
    assert call(bench, "GET", "/prices?market=sopt", headers=viewer).status_code == 422


def test_the_ledger_and_a_job_say_what_was_paid(bench):
    start = bench.clock.now_ms()
    bench.node(billed_from_ms=start, ended_at_ms=start + 1_800_000)
    viewer = bench.token("viewer")
    bill = call(bench, "GET", "/ledger?job=train", headers=viewer).json()["items"][0]
    assert (bill["paid_micro_usd"], bill["billed_s"], bill["segment"]["job_id"]) == (
        12_000_000,
        1800,
        "train-aaaaa",
    )
    assert call(bench, "GET", "/jobs/train", headers=viewer).json()["paid_micro_usd"] == 12_000_000
    secret = call(bench, "GET", "/nodes", headers=viewer).json()["items"][0]
    assert "secret_sha256" not in secret


def test_why(bench):
    job = bench.job()
    with bench.store.write() as tx:
        for number, kind in enumerate((DecisionKind.STAY, DecisionKind.PLACE)):
            tx.save_decision(
                Decision(
                    f"d{number}",
                    job.id,
                    "default",
                    "default",
                    "0" * 64,
                    bench.clock.now_ms() + number,
                    kind,
                    True,
                    kind,
                )
            )
    items = call(bench, "GET", "/jobs/train/decisions?limit=1", headers=bench.token("viewer")).json()["items"]
    assert [item["kind"] for item in items] == ["place"]


def test_pause_is_a_switch_with_a_name_on_it(bench):
    operator = bench.token("operator", "olga")
    assert call(bench, "POST", "/pause", {"reason": "bill"}, operator).status_code == 204
    assert call(bench, "GET", "/whoami", headers=operator).json()["paused"] is True
    with bench.store.read() as tx:
        switch = next(s for s in tx.switches() if s.name == PAUSED)
    assert (switch.set_by, switch.reason) == ("olga", "bill")
    ended = call(bench, "POST", "/resume", headers=operator)
    assert ended.json() == {"ended": True, "report_only": False}
    assert call(bench, "GET", "/whoami", headers=operator).json()["paused"] is False
    assert bench.wakes == 2
    assert call(bench, "POST", "/resume", headers=operator).json()["ended"] is False


def test_each_switch_is_ended_by_its_own_call(bench):
    operator = bench.token("operator", "olga")
    clear = ("POST", "/report-only/clear", {"reason": "looked"}, operator)
    with bench.store.write() as tx:
        tx.set_switch(REPORT_ONLY, True, reason="restored")
        tx.set_switch(PAUSED, True, by="olga")
        before = tx.last_seq()
    assert call(bench, "POST", "/resume", headers=operator).json() == {"ended": True, "report_only": True}
    with bench.store.write() as tx:
        assert tx.switched_on() == {REPORT_ONLY}
        tx.set_switch(PAUSED, True, by="olga")
    cleared = call(bench, *clear).json()
    assert (cleared["cleared"], cleared["paused"], cleared["audit"]["report_only"]) == (True, True, None)
    with bench.store.read() as tx:
        assert tx.switched_on() == {PAUSED}
        assert tx.last_seq() == before + 3
    assert call(bench, *clear).json() == {"cleared": False, "paused": True, "audit": None}
    with bench.store.read() as tx:
        assert tx.last_seq() == before + 3, "nothing was latched: nothing is written"


def test_policies_are_reloaded_and_a_broken_edit_is_told(bench):
    author = bench.token("author")
    folder = bench.services.settings.policies.dir
    (folder / "night.yaml").write_text("policy: night\nmode: act\n")
    state = call(bench, "POST", "/policies/reload", headers=author).json()
    assert (state["added"], state["mistakes"]) == (["night"], [])
    (folder / "night.yaml").write_text("policy: night\nmode: atc\n")
    state = call(bench, "POST", "/policies/reload", headers=author).json()
    assert (state["mistakes"][0]["line"], [p["mode"] for p in state["policies"] if p["name"] == "night"]) == (
        2,
        ["act"],
    )


def test_doctor(bench):
    items = call(bench, "GET", "/doctor", headers=bench.token("operator")).json()["items"]
    assert items == [
        {"subject": "aws", "name": "credentials", "ok": False, "detail": "no key: set AWS_ACCESS_KEY_ID"}
    ]


def test_health_follows_finished_work(bench):
    assert bench.client.get("/healthz").status_code == 200
    assert bench.client.get("/readyz").status_code == 503
    bench.health = Health(pass_age_s=1.5)
    assert bench.client.get("/readyz").json() == {"ready": True, "pass_age_s": 1.5}
    bench.health = Health(pass_age_s=900)
    assert bench.client.get("/readyz").status_code == 503


def test_metrics(bench):
    bench.node(billed_from_ms=bench.clock.now_ms(), state=NodeState.RUNNING)
    bench.history.record_poll(
        Poll("aws", bench.clock.now_ms() - 1000, bench.clock.now_ms(), False, error="timeout")
    )
    bench.health = Health(
        pass_age_s=2,
        poll_age_s={"aws": 60.0, "gcp": None},
        unowned_nodes=0,
        sweep_age_s={"aws": 30.0, "gcp": None},
    )
    text = bench.client.get("/metrics").text
    for line in (
        "broker_pass_age_seconds 2.0",
        'broker_poll_age_seconds{cloud="aws"} 60.0',
        'broker_poll_failing{cloud="aws"} 1.0',
        'broker_placements{state="booting"} 1.0',
        'broker_nodes{cloud="aws",state="running"} 1.0',
        "broker_unowned_nodes 0.0",
        'broker_sweep_age_seconds{cloud="aws"} 30.0',
        'broker_poll_interval_seconds{cloud="aws"} 300.0',
        "broker_intent_age_seconds 0.0",
        "broker_releases_overdue 0.0",
        'broker_burn_usd_per_hour{cloud="aws"} 30.0',
        'broker_offer_price_usd_per_hour{cloud="aws",gpu="H100-SXM5-80GB",market="spot",region="us-east-1"} 3.0',
    ):
        assert line in text.splitlines(), line
    assert "train" not in text


def test_a_cloud_that_has_never_answered_ages_since_the_start(bench):
    """Else no alert could fire on it: `aws` is configured, and nothing is known of it."""
    bench.health = Health(up_s=1000.0, sweep_age_s={"gcp": 30.0, "local": None}, poll_age_s={"gcp": 60.0})
    lines = bench.client.get("/metrics").text.splitlines()
    for line in (
        'broker_sweep_age_seconds{cloud="aws"} 1000.0',
        'broker_sweep_age_seconds{cloud="gcp"} 30.0',
        'broker_sweep_age_seconds{cloud="local"} 1000.0',
        'broker_poll_age_seconds{cloud="aws"} 1000.0',
        'broker_poll_age_seconds{cloud="gcp"} 60.0',
    ):
        assert line in lines, line


def value_of(bench, metric):
    lines = bench.client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{metric} "))


@pytest.mark.parametrize("state", [NodeState.INTENDED, NodeState.UNKNOWN, NodeState.RELEASING])
def test_the_age_of_an_intent_without_an_outcome(bench, state):
    node = bench.node(state=state, state_since_ms=bench.clock.now_ms())
    bench.clock.advance(90)
    bench.node(job=bench.job("other-bbbbb"), attempt=2, state=state, state_since_ms=bench.clock.now_ms())
    assert value_of(bench, "broker_intent_age_seconds") == 90
    with bench.store.write() as tx:
        tx.save(replace(node, state=NodeState.RUNNING))
    assert value_of(bench, "broker_intent_age_seconds") == 0


def test_a_fence_that_was_granted_and_not_confirmed_is_an_intent(bench):
    node = bench.node()
    with bench.store.write() as tx:
        placement = tx.placement(node.placement_id)
        now_ms = bench.clock.now_ms()
        tx.save(replace(placement, state=PlacementState.READY, state_since_ms=now_ms))
    bench.clock.advance(60)
    assert value_of(bench, "broker_intent_age_seconds") == 0
    with bench.store.write() as tx:
        tx.save(replace(tx.placement(node.placement_id), generation=1))
    assert value_of(bench, "broker_intent_age_seconds") == 60


def test_releases_that_take_too_long_are_counted(bench):
    node = bench.node()
    with bench.store.write() as tx:
        placement = tx.placement(node.placement_id)
        now_ms = bench.clock.now_ms()
        tx.save(replace(placement, state=PlacementState.RELEASING, state_since_ms=now_ms))
    bench.clock.advance(900)
    assert value_of(bench, "broker_releases_overdue") == 0
    bench.clock.advance(1)
    assert value_of(bench, "broker_releases_overdue") == 1


UNOWNED = Discrepancy(
    "aws/i-1", Kind.UNKNOWN, Act.END, "bk-a-0", "aws", "us-east-1/use1-az6", "i-1", "2h old"
)


def test_an_audit_and_what_it_does(bench):
    operator = bench.token("operator", "alan")
    bench.audit = replace(bench.audit, discrepancies=(UNOWNED,))
    found = call(bench, "GET", "/audit", headers=operator).json()
    assert found["discrepancies"][0] | {"kind": "unknown", "act": "end"} == found["discrepancies"][0]
    assert found == call(bench, "GET", "/nodes/unowned", headers=operator).json()
    done = call(bench, "POST", "/audit/apply", {"ids": ["aws/i-1"]}, operator).json()
    assert [item["id"] for item in done["done"]] == ["aws/i-1"]
    assert bench.applied == [(["aws/i-1"], "alan")]
    assert call(bench, "POST", "/audit/apply", {"id": "aws/i-1"}, operator).status_code == 422


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


@pytest.mark.parametrize("name", ["", "a" * 100, "\u0000", "two words", "../up"])
def test_a_token_is_named_with_a_name(bench, name):
    answer = bench.client.post(
        "/api/v1/tokens", json={"role": "viewer", "name": name}, headers=bench.token("operator")
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


def test_a_job_between_two_policies_is_refused_as_it_is_checked(bench):
    folder = bench.services.settings.policies.dir
    (folder / "a.yaml").write_text("policy: a\nmode: act\n")
    (folder / "b.yaml").write_text(f"policy: b\nmode: act\nmatch: {{priority: {SPEC.priority}}}\n")
    bench.services.policies.reload()
    headers = bench.token("engineer")
    answers = [
        call(bench, "POST", path, SUBMIT, headers | {"Idempotency-Key": "tied-0001"})
        for path in ("/jobs/check", "/jobs")
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(422, "policy_file")] * 2
    assert answers[0].json() == answers[1].json()
    assert "is matched by a (" in answers[1].text
    assert call(bench, "GET", "/jobs", headers=headers).json()["items"] == []


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
