"""``/api/v1/jobs`` and the ledger: once-only submission, names, what is shown and what is hidden."""

from dataclasses import replace

import pytest

from broker.core.model import Decision, DecisionKind, JobState, NodeState, Progress
from broker.core.plain import to_plain
from broker.core.time import to_iso
from broker.store.access import REPORT_ONLY
from tests.unit.serve.calling import SUBMIT, call
from tests.unit.serve.conftest import OFFER, SPEC


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
