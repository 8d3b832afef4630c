"""``/api/v1`` for operators and authors: switches, policies, doctor, audit."""

from dataclasses import replace

from broker.core.audit import Act, Discrepancy, Kind
from broker.store.access import PAUSED, REPORT_ONLY
from tests.unit.serve.calling import call


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
