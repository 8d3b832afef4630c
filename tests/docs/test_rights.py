"""The rights that pages tell people to grant are those of the calls in the code: none is missing, none is idle."""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from providers.aws.checks import _READS, _SCORES, _right
from providers.coreweave.cluster import GROUP, PLURAL
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "docs" / "examples"
# What a call of a client needs. A call that is not here has no right on any page.
GCP = {
    "advice.capacity": ["compute.advice.capacity"],
    "advice.capacity_history": ["compute.advice.capacityHistory"],
    "catalogue.list_skus": [],  # the price list is public
    "instances.aggregated_list": ["compute.instances.list"],
    "instances.delete_unary": ["compute.instances.delete"],
    "instances.get": ["compute.instances.get"],
    # With labels on machine and disk, a start-up script, tags and a service account; the network in either form.
    "instances.insert_unary": [
        *(f"compute.disks.{right}" for right in ("create", "setLabels")),
        "compute.images.useReadOnly",
        "compute.instances.create",
        *(f"compute.instances.{right}" for right in ("setLabels", "setMetadata", "setServiceAccount", "setTags")),
        "compute.networks.use",
        *(f"compute.subnetworks.{right}" for right in ("use", "useExternalIp")),
    ],
    "machine_types.list": ["compute.machineTypes.list"],
    "regions.get": ["compute.regions.get"],
    "zone_operations.get": ["compute.zoneOperations.get"],
    "zone_operations.list": ["compute.zoneOperations.list"],
}  # fmt: skip
AZURE = {
    "compute.resource_skus.list": ["Microsoft.Compute/skus/read"],
    "compute.usage.list": ["Microsoft.Compute/locations/usages/read"],
    # Resource Graph answers with what the caller may see of a subscription.
    "graph.resources": ["Microsoft.ResourceGraph/resources/read", "Microsoft.Resources/subscriptions/read"],
    "recommender.spot_placement_scores.post": ["Microsoft.Compute/locations/placementScores/generate/action"],
}
# By method of boto3; tags are given with a launch, and who one is needs no right.
_AWS_SERVICE = {"get_products": "pricing", "get_service_quota": "servicequotas"}
_AWS_CALL = re.compile(
    r'get_paginator\(\s*"(\w+)"|\.((?!get_pag|get_caller)(?:describe|run|terminate|get)_[a-z_]+)\('
)


# What a cloud of which only prices are read does not run: launches and what looks after them, and their checks.
_LAUNCHES = {"aws": {"provider.py", "checks.py"}, "gcp": {"provider.py", "checks.py"}}


def source(cloud: str, without: Collection[str] = ()) -> str:
    """All of a provider but these files."""
    files = sorted((ROOT / "providers" / cloud).glob("*.py"))
    return "\n".join(file.read_text() for file in files if file.name not in without)


def aws_actions(code: str) -> Iterator[str]:
    """Of the calls in the code."""
    for paginated, called in _AWS_CALL.findall(code):
        method = paginated or called
        yield f"{_AWS_SERVICE.get(method, 'ec2')}:{method.title().replace('_', '')}"


def documents(file: Path) -> list[Any]:
    """Of a YAML file."""
    return list(YAML(typ="safe", pure=True).load_all(file.read_text()))


def test_aws() -> None:
    policy = json.loads((EXAMPLES / "aws-policy.json").read_text())
    granted: list[str] = []
    for statement in policy["Statement"]:
        actions = statement["Action"]
        granted += [actions] if isinstance(actions, str) else actions
    assert sorted(granted) == sorted({*aws_actions(source("aws")), "ec2:CreateTags"})
    conditions = {str(s["Action"]): s.get("Condition") for s in policy["Statement"]}
    assert "aws:ResourceTag/broker:installation" in str(conditions["ec2:TerminateInstances"]), (
        "only what is ours"
    )
    assert "RunInstances" in str(conditions["ec2:CreateTags"]), "only with a launch"


def test_aws_prices() -> None:
    (statement,) = json.loads((EXAMPLES / "aws-prices-policy.json").read_text())["Statement"]
    assert sorted(statement["Action"]) == sorted(set(aws_actions(source("aws", _LAUNCHES["aws"]))))
    # Doctor asks for each by a dry run, and must ask for no other where nothing is launched.
    asked = {_right(call).removeprefix("aws: ") for call in _READS | _SCORES}
    assert asked | {"pricing:GetProducts"} == set(statement["Action"])


def test_gcp_prices() -> None:
    calls = set(re.findall(r"_clients\.([a-z_]+\.[a-z_]+)\(", source("gcp", _LAUNCHES["gcp"])))
    (role,) = documents(EXAMPLES / "gcp-prices-role.yaml")
    assert sorted(role["includedPermissions"]) == sorted(right for call in calls for right in GCP[call])


def test_gcp() -> None:
    calls = set(re.findall(r"_clients\.([a-z_]+\.[a-z_]+)\(", source("gcp")))
    assert calls == GCP.keys()
    (role,) = documents(EXAMPLES / "gcp-role.yaml")
    assert sorted(role["includedPermissions"]) == sorted(right for rights in GCP.values() for right in rights)
    assert role["stage"] in ("ALPHA", "BETA", "GA")


def test_azure() -> None:
    calls = set(re.findall(r"clients\.((?:compute|graph|recommender)\.[a-z_.]+)\(", source("azure")))
    assert calls == AZURE.keys()
    role = json.loads((EXAMPLES / "azure-role.json").read_text())
    assert sorted(role["Actions"]) == sorted(right for rights in AZURE.values() for right in rights)
    assert role["AssignableScopes"] == ["/subscriptions/SUBSCRIPTION"]


def test_coreweave() -> None:
    found = {document["kind"]: document for document in documents(EXAMPLES / "coreweave-role.yaml")}
    for document in found.values():
        kubernetes_validate.validate(document, "1.37", strict=True)
    role, binding, account = found["ClusterRole"], found["ClusterRoleBinding"], found["ServiceAccount"]
    # Beside these two, the code asks for the version and for its own rights, which everybody may.
    methods = set(re.findall(r"\bcustom\.(\w+)\(", source("coreweave")))
    assert methods == {"list_cluster_custom_object"}
    assert role["rules"] == [{"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["list"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account["metadata"]}]
    assert found["Namespace"]["metadata"]["name"] == account["metadata"]["namespace"]


@pytest.mark.parametrize(
    "name",
    [
        "aws-policy.json",
        "aws-prices-policy.json",
        "azure-role.json",
        "coreweave-role.yaml",
        "gcp-prices-role.yaml",
        "gcp-role.yaml",
    ],
)
def test_a_page_says_how_to_grant_them(name: str) -> None:
    page = ROOT / "docs" / "how-to" / f"connect-{name.partition('-')[0]}.md"
    assert f"docs/examples/{name}" in page.read_text()
