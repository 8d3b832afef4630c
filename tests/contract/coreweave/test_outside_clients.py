"""The face of CoreWeave beside Kubernetes' own clients and schemas."""

import json
import os
import shutil
import ssl
import subprocess
from typing import Any

import httpx
import pytest
from kubernetes import client, config

from lab.faces import coreweave
from lab.faces.coreweave_objects import DISCOVERY
from lab.sold.coreweave import CLUSTER_ZONE
from lab.tls import Authority
from tests.contract.coreweave.conftest import TOKEN, CoreWeave

pytestmark = pytest.mark.process


@pytest.fixture
def outside(cloud: CoreWeave, authority: Authority) -> Any:
    """Kubernetes' own client, as its documentation uses it."""
    file = cloud.folder / "kubeconfig"
    file.write_text(coreweave.kubeconfig(cloud.server.url, authority.ca_file.read_bytes(), TOKEN))
    with config.new_client_from_config(str(file), persist_config=False) as api:
        yield api


def test_nodes_are_those_of_the_pools_that_got_one(cloud: CoreWeave, outside: Any) -> None:
    nodes = client.CoreV1Api(outside).list_node(limit=2)
    more = client.CoreV1Api(outside).list_node(limit=20, _continue=nodes.metadata._continue)
    types = sorted(
        (n.metadata.labels["node.kubernetes.io/instance-type"], n.status.allocatable["nvidia.com/gpu"])
        for n in [*nodes.items, *more.items]
    )
    assert types == sorted(
        (pool.listing.type.name, str(pool.listing.type.gpus))
        for key, pool in cloud.world.pools.items()
        if key.startswith(f"coreweave/{CLUSTER_ZONE}/") and cloud.world.free(key) != 0
    )


def test_one_node_pool_by_name(outside: Any) -> None:
    custom = client.CustomObjectsApi(outside)
    asked = ("compute.coreweave.com", "v1alpha1", "nodepools")
    pool = custom.get_cluster_custom_object(*asked, "gd-8xh100ib-i128-spot")
    assert (pool["spec"]["computeClass"], pool["status"]["currentNodes"]) == ("spot", 0)
    with pytest.raises(client.ApiException) as caught:
        custom.get_cluster_custom_object(*asked, "none")
    assert (caught.value.status, json.loads(caught.value.body)["reason"]) == (404, "NotFound")
    with pytest.raises(client.ApiException) as caught:
        custom.delete_cluster_custom_object(*asked, "gd-8xh100ib-i128-spot")
    assert caught.value.status == 405


@pytest.mark.parametrize(
    "path", [*DISCOVERY, "/api/v1/nodes", "/apis/compute.coreweave.com/v1alpha1/nodepools"]
)
def test_every_reply_of_the_face_fits_kubernetes_schema(cloud: CoreWeave, path: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(verify=ssl.create_default_context(cafile=cloud.options["ca_file"])) as http:
        assert http.get(f"{cloud.server.url}{path}", headers=headers).status_code == 200
        assert http.get(f"{cloud.server.url}{path}").status_code == 401
    assert len(cloud.face.requests) == 2


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_lists_the_node_pools(cloud: CoreWeave, outside: Any) -> None:
    command = ["kubectl", "--kubeconfig", str(cloud.folder / "kubeconfig"), "get", "nodepools", "-o", "name"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(cloud.folder)}
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment)
    assert told.stderr == ""
    assert "nodepool.compute.coreweave.com/gd-8xh100ib-i128-on-demand" in told.stdout.splitlines()
