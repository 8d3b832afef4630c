"""A daemon's configuration for a lab: a real one, with the lab's end points where the vendors' would be.

broker.toml   for ``broker serve --config``
broker.env    credentials, for the shell that starts it: ``set -a; source broker.env; set +a``
"""

import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

POLICIES = Path(__file__).resolve().parent.parent / "policies"


def write_broker_config(folder: Path, info: Mapping[str, Any]) -> None:
    """Both files beside ``lab.json``; the daemon's state will lie there, too. `info`: what ``lab.json`` says."""
    (folder / "broker.toml").write_text(broker_toml(info, folder / "state", free_port()))
    environment = folder / "broker.env"
    environment.touch(mode=0o600)
    environment.write_text(
        "".join(f"{name}={shlex.quote(value)}\n" for name, value in broker_environment(info).items())
    )


def broker_environment(info: Mapping[str, Any]) -> dict[str, str]:
    """What a daemon needs in its environment: the vendors' own variables, and keys of the checkpoint store."""
    s3 = info["s3"]
    return {**info["env"], "LAB_S3_ACCESS_KEY": s3["access_key"], "LAB_S3_SECRET_KEY": s3["secret_key"]}


def broker_toml(info: Mapping[str, Any], state: Path, port: int) -> str:
    """The file's text. Intervals are short, because a lab's hours are."""
    return f"""\
# Written by the lab. For real clouds: leave out [clock], [timing] and every endpoint.
[server]
listen = "127.0.0.1:{port}"

[state]
dir = "{state}"

[clock]
rate = {info["rate"]:g}
anchor = "{info["anchor"]}"

[store]
kind = "s3"
endpoint = "{info["endpoints"]["s3"]}"
bucket = "{info["s3"]["bucket"]}"
access_key_env = "LAB_S3_ACCESS_KEY"
secret_key_env = "LAB_S3_SECRET_KEY"
ca_file = "{info["ca_file"]}"

{cloud_sections(info)}
[policies]
dir = "{POLICIES}"

[limits]
max_usd_per_hour = 60
max_nodes = 8

[timing]
beat = "8s"
reconcile_interval = "8s"
unreachable_after = "5m"
empty_pool_for = "4m"
collect_interval = "60s"
notice = "120s"
boot_estimate = "60s"
probe_estimate = "80s"
restore_estimate = "40s"
"""


def cloud_sections(info: Mapping[str, Any]) -> str:
    """One ``[clouds.*]`` for each cloud of the lab."""
    ends = info["endpoints"]
    return f"""\
[clouds.aws]
regions = ["us-east-1"]
endpoint_ec2 = "{ends["aws_ec2"]}"
endpoint_pricing = "{ends["aws_pricing"]}"
endpoint_sts = "{ends["aws_sts"]}"
endpoint_service_quotas = "{ends["aws_service_quotas"]}"
image_id = "ami-0123456789abcdef0"
poll_interval = "20s"

[clouds.gcp]
project = "{info["gcp"]["project"]}"
regions = ["us-central1"]
image = "projects/ml-images/global/images/family/common-gpu"
endpoint_compute = "{ends["gcp_compute"]}"
endpoint_billing = "{ends["gcp_billing"]}"
poll_interval = "20s"

[clouds.coreweave]
price_file = "{info["coreweave"]["price_file"]}"
api_server = "{ends["coreweave"]}"
ca_file = "{info["ca_file"]}"
cluster_zone = "{info["coreweave"]["zone"]}"
poll_interval = "2m"

[clouds.lambda]
endpoint = "{ends["lambda"]}"
ca_file = "{info["ca_file"]}"
poll_interval = "2m"

[clouds.azure]
regions = ["eastus", "westus3"]
subscription_id = "{info["azure"]["subscription"]}"
tenant_id = "{info["azure"]["tenant"]}"
client_id = "{info["azure"]["client"]}"
placement_scores = true
endpoint_retail = "{ends["azure"]}"
endpoint_arm = "{ends["azure"]}"
endpoint_login = "{ends["azure"]}"
ca_file = "{info["ca_file"]}"
poll_interval = "2m"
"""


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
