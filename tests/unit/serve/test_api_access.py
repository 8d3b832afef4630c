"""``/api/v1``: who may do what, and the tokens that say who one is."""

import pytest

from tests.unit.serve.calling import SUBMIT, call

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
    ("POST", "/market/polls/aws", None, "operator"),
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


@pytest.mark.parametrize("name", ["", "a" * 100, "\u0000", "two words", "../up"])
def test_a_token_is_named_with_a_name(bench, name):
    answer = bench.client.post(
        "/api/v1/tokens", json={"role": "viewer", "name": name}, headers=bench.token("operator")
    )
    assert answer.status_code == 422
