"""The face of Lambda beside what the vendor publishes."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.faces.lambda_cloud_schema import OPERATIONS, SCHEMAS
from lab.sold import lambda_cloud as sold
from providers.lambda_cloud.regions import REGIONS
from tests.contract.lambda_cloud.conftest import KEY, Lambda

pytestmark = pytest.mark.process


@pytest.mark.parametrize("path", OPERATIONS)
def test_every_list_of_the_face_fits_the_schema(cloud: Lambda, path: str) -> None:
    with httpx.Client(verify=cloud.trusted()) as http:
        for authorization, status in ((f"Bearer {KEY}", 200), ("Bearer x", 401), ("", 401)):
            reply = http.get(f"{cloud.server.url}{path}", headers={"Authorization": authorization})
            assert reply.status_code == status
        assert http.get(f"{cloud.server.url}{path}", auth=(KEY, "")).status_code == 200, "curl --user KEY:"
        assert http.post(f"{cloud.server.url}{path}", auth=(KEY, "")).status_code == 404, "it rents nothing"
    assert cloud.face.requests.count(path) == 5


def test_the_schema_is_the_vendors() -> None:
    """Against a copy of https://cloud.lambda.ai/api/v1/openapi.json, which nobody may ship."""
    copy = os.environ.get("LAMBDA_OPENAPI")
    if not copy:
        pytest.skip("LAMBDA_OPENAPI names no copy of the vendor's document")
    document = json.loads(Path(copy).read_text())
    theirs = document["components"]["schemas"]
    assert {name: _bare(theirs[name]) for name in SCHEMAS} == SCHEMAS
    for path, (operation, schema) in OPERATIONS.items():
        method = document["paths"][path]["get"]
        assert method["operationId"] == operation
        data = method["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["data"]
        assert data["type" if "type" in data else "$ref"] == schema["type" if "type" in data else "$ref"]
        assert {"bearerAuth": []} in method["security"]
    assert set(REGIONS) == set(theirs["PublicRegionCode"]["enum"])
    assert set(sold.PLACES) <= set(REGIONS)


def _bare(schema: Any) -> Any:
    """Without the texts: what remains says what a document must look like."""
    if isinstance(schema, list):
        return [_bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    texts = ("description", "title", "default", "example", "examples")
    return {
        key: {name: _bare(item) for name, item in value.items()} if key == "properties" else _bare(value)
        for key, value in schema.items()
        if key not in texts
    }
