"""One call of the API as a client makes it."""

from broker.core.plain import to_plain
from tests.unit.serve.conftest import SPEC

KEY = {"Idempotency-Key": "key-00000001"}
SUBMIT = {"spec": to_plain(SPEC)}


def call(bench, method, path, body=None, headers=None):
    """With an idempotency key, which only a submission reads."""
    return bench.client.request(method, f"/api/v1{path}", json=body, headers={**KEY, **(headers or {})})
