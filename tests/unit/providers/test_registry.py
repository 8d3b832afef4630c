"""Opening a cloud: strict options, SDKs imported late, and which end points are a vendor's own."""

import subprocess
import sys
from typing import Any

import pytest

from broker.core.errors import SettingsError
from providers.registry import CLOUDS, open_provider, open_source, vendor_endpoints
from tests.clocks import ManualClock

AWS = {"regions": ["us-east-1"], "image_id": "ami-0123"}
GCP = {"project": "p", "regions": ["us-central1"], "image": "projects/p/global/images/i"}
LOCAL = {"dir": "/var/lib/broker-nodes", "gpu": "L4-24GB", "price_usd_h": 0.12}
AZURE = {"regions": ["eastus"]}
GOOD: dict[str, dict[str, Any]] = {
    "aws": AWS,
    "azure": AZURE,
    "coreweave": {},
    "gcp": GCP,
    "lambda": {},
    "local": LOCAL,
}


def test_importing_the_registry_imports_no_sdk() -> None:
    code = (
        "import sys, providers.registry as r;"
        f"r.vendor_endpoints('aws', {AWS!r}); r.vendor_endpoints('gcp', {GCP!r});"
        f"r.vendor_endpoints('azure', {AZURE!r}); r.vendor_endpoints('coreweave', {{}});"
        "sdks = {'boto3', 'botocore', 'google', 'azure', 'kubernetes'};"
        "sys.exit(any(m.split('.')[0] in sdks for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_opening_calls_nobody(cloud: str) -> None:
    assert open_source(cloud, GOOD[cloud], ManualClock(), "broker-lab1").cloud == cloud


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_only_a_cloud_that_rents_is_opened_for_renting(cloud: str) -> None:
    if cloud in ("aws", "gcp", "local"):
        assert open_provider(cloud, GOOD[cloud], ManualClock(), "broker-lab1").cloud == cloud
    else:
        with pytest.raises(SettingsError, match=rf"clouds\.{cloud}: only the prices"):
            open_provider(cloud, GOOD[cloud], ManualClock(), "broker-lab1")


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_a_misspelt_key_is_named_with_a_suggestion(cloud: str) -> None:
    keys = {
        "aws": "regoins",
        "azure": "regoins",
        "gcp": "proejct",
        "lambda": "api_key_evn",
        "coreweave": "znoes",
    }
    key = keys.get(cloud, "prize_usd_h")
    with pytest.raises(SettingsError) as caught:
        open_source(cloud, GOOD[cloud] | {key: ["x"]}, ManualClock(), "broker-lab1")
    assert f"clouds.{cloud}.{key}" in str(caught.value)
    assert "did you mean" in str(caught.value)


def test_a_misspelt_key_is_told_before_the_key_that_is_missing() -> None:
    with pytest.raises(
        SettingsError, match=r"clouds\.aws\.imgae_id: unknown key\nhint: did you mean image_id"
    ):
        open_provider("aws", {"regions": ["us-east-1"], "imgae_id": "ami-1"}, ManualClock(), "i")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match=r"clouds\.gcp\.credentials_file: there is no file /nowhere/key"):
        open_provider("gcp", GCP | {"credentials_file": "/nowhere/key.json"}, ManualClock(), "broker-lab1")


def test_a_missing_key_says_what_it_is_for() -> None:
    with pytest.raises(SettingsError) as caught:
        open_provider("aws", {"regions": ["us-east-1"], "key_name": "mine"}, ManualClock(), "i")
    assert "clouds.aws.image_id: missing" in str(caught.value)
    assert "ami-" in str(caught.value)


def test_a_wrong_value_names_its_key() -> None:
    with pytest.raises(SettingsError, match=r"clouds\.gcp\.regions"):
        open_provider("gcp", GCP | {"regions": []}, ManualClock(), "i")
    with pytest.raises(SettingsError, match=r"clouds\.local\.gpu.*unknown GPU"):
        open_provider("local", LOCAL | {"gpu": "H100"}, ManualClock(), "i")
    with pytest.raises(SettingsError, match=r"clouds\.local\.dir"):
        open_provider("local", LOCAL | {"dir": "relative"}, ManualClock(), "i")


def test_an_unknown_cloud_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match="there are " + ", ".join(CLOUDS)):
        open_provider("ibm", {}, ManualClock(), "i")


def test_an_installation_id_that_cannot_be_a_label_is_refused() -> None:
    with pytest.raises(SettingsError, match="label"):
        open_provider("gcp", GCP, ManualClock(), "Not A Label")


def test_vendor_endpoints_are_those_that_are_not_redirected() -> None:
    lab = "https://127.0.0.1:8443"
    assert vendor_endpoints("aws", AWS) == [
        "https://ec2.us-east-1.amazonaws.com",
        "https://api.pricing.us-east-1.amazonaws.com",
        "https://sts.us-east-1.amazonaws.com",
        "https://servicequotas.us-east-1.amazonaws.com",
    ]
    redirected = {"endpoint_ec2": lab, "endpoint_pricing": lab, "endpoint_sts": lab}
    assert vendor_endpoints("aws", AWS | redirected) == []
    assert vendor_endpoints("aws", AWS | redirected | {"endpoint_ec2": "https://ec2.eu-west-1.amazonaws.com"})
    assert vendor_endpoints("gcp", GCP | {"endpoint_compute": lab}) == ["https://cloudbilling.googleapis.com"]
    assert vendor_endpoints("gcp", GCP | {"endpoint_compute": lab, "endpoint_billing": lab}) == []
    assert vendor_endpoints("local", LOCAL) == []
