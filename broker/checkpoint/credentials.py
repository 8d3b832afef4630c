"""Who may reach the checkpoint store, and with which keys.

The daemon signs with the keys that the settings name. A node gets keys for its job's prefix alone where the store
can mint some (`sts`), and the daemon's own where it cannot (`static`): then every node can read and write all
jobs, which the operator accepts by writing `mint = "static"`.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from broker.core.errors import SettingsError, StoreError
from broker.textfile import read_text
from broker.wire.messages import StoreAccess

# Limits of AssumeRole's DurationSeconds (docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html). A role's
# own maximum may be lower, and is one hour for a role assumed from a role; then AWS refuses, and we pass that on.
STS_MIN_S = 900
STS_MAX_S = 43_200


class StoreSection(Protocol):
    """The checkpoint store's part of the settings file."""

    kind: Any
    endpoint: str
    region: str
    bucket: str
    prefix: str
    access_key_env: str
    secret_key_env: str
    ca_file: Path | None
    mint: Any
    role_arn: str
    sts_endpoint: str


@dataclass(frozen=True)
class StoreSettings:
    """Where checkpoints are kept.

    Attributes:
        kind: ``s3`` or ``folder``.
        endpoint: ``https://host[:port]``; empty for AWS's own in `region`.
        prefix: Of every key; no slash at either end.
        path: For ``folder``.
        access_key_env, secret_key_env: Variables that hold the keys; read when needed, never kept here.
        ca_file: Trusted for `endpoint`, and for `sts_endpoint` where that is set.
        mint: ``static`` or ``sts``.
        role_arn: Assumed for each job, for ``sts``.
    """

    kind: str
    endpoint: str = ""
    region: str = "us-east-1"
    bucket: str = ""
    prefix: str = ""
    path: str = ""
    access_key_env: str = "AWS_ACCESS_KEY_ID"
    secret_key_env: str = "AWS_SECRET_ACCESS_KEY"
    ca_file: Path | None = None
    mint: str = "static"
    role_arn: str = ""
    sts_endpoint: str = ""

    @classmethod
    def of(cls, section: StoreSection, folder: Path) -> "StoreSettings":
        """From the settings file.

        Args:
            folder: Where a ``folder`` store lies.
        """
        return cls(
            kind=str(section.kind),
            endpoint=section.endpoint,
            region=section.region,
            bucket=section.bucket,
            prefix=section.prefix.strip("/"),
            path=str(folder) if section.kind == "folder" else "",
            access_key_env=section.access_key_env,
            secret_key_env=section.secret_key_env,
            ca_file=section.ca_file,
            mint=str(section.mint),
            role_arn=section.role_arn,
            sts_endpoint=section.sts_endpoint,
        )

    def job_prefix(self, job_id: str) -> str:
        """Key prefix of one job, without a slash at the end."""
        return f"{self.prefix}/jobs/{job_id}".lstrip("/")


def own_access(settings: StoreSettings, env: Mapping[str, str] | None = None) -> StoreAccess:
    """The daemon's own access, to every job.

    Raises:
        SettingsError: a variable or the CA file is missing.
    """
    if settings.kind == "folder":
        return StoreAccess("folder", settings.prefix, path=settings.path)
    variables = os.environ if env is None else env
    # Keys of a session come with a token; AWS's tools keep it in the variable beside the two default ones.
    token = variables.get("AWS_SESSION_TOKEN", "") if settings.access_key_env == "AWS_ACCESS_KEY_ID" else ""
    return StoreAccess(
        kind="s3",
        prefix=settings.prefix,
        endpoint=settings.endpoint or f"https://s3.{settings.region}.amazonaws.com",
        region=settings.region,
        bucket=settings.bucket,
        access_key=_variable(variables, settings.access_key_env),
        secret_key=_variable(variables, settings.secret_key_env),
        session_token=token,
        ca_pem=_read_ca(settings.ca_file),
    )


def mint(
    settings: StoreSettings, job_id: str, lease_s: float, env: Mapping[str, str] | None = None
) -> StoreAccess:
    """Access for the nodes of one job.

    Minted keys live two run leases, so that they may be handed out until half of their life is over and still
    outlive the lease of a node that is cut off just then.

    Args:
        lease_s: Run lease, in *real* seconds: keys expire on the store's clock, which no rehearsal speeds up.

    Raises:
        SettingsError: the settings cannot give such keys.
        StoreError: the store's cloud refused, or did not answer.
    """
    own = own_access(settings, env)
    own.prefix = settings.job_prefix(job_id)
    if settings.kind == "folder" or settings.mint == "static":
        return own
    if not settings.role_arn:
        raise SettingsError(
            "store.mint is `sts`, but store.role_arn is empty; name a role that may use the bucket"
        )
    if lease_s > STS_MAX_S:
        raise SettingsError(
            f"a run lease of {lease_s:.0f} s outlives every key that STS gives ({STS_MAX_S} s); shorten the lease"
        )
    life_s = min(STS_MAX_S, max(STS_MIN_S, math.ceil(2 * lease_s)))
    keys = _assume_role(settings, own, job_id, life_s)
    own.access_key = keys["AccessKeyId"]
    own.secret_key = keys["SecretAccessKey"]
    own.session_token = keys["SessionToken"]
    own.expires_in_s = float(life_s)
    return own


def session_policy(settings: StoreSettings, job_id: str) -> dict[str, Any]:
    """What a job's keys may do: read, write and delete below its prefix, and list that prefix. Nothing else.

    Effective rights are the intersection of this with the role's own.
    """
    partition = settings.role_arn.split(":")[1] if settings.role_arn.startswith("arn:") else "aws"
    bucket = f"arn:{partition}:s3:::{settings.bucket}"
    prefix = settings.job_prefix(job_id)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
                "Resource": f"{bucket}/{prefix}/*",
            },
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": bucket,
                "Condition": {"StringLike": {"s3:prefix": f"{prefix}/*"}},
            },
        ],
    }


def _assume_role(settings: StoreSettings, own: StoreAccess, job_id: str, life_s: int) -> Mapping[str, str]:
    # boto3 takes 0.3 s and 40 MB to import: only where it is used.
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "sts",
        region_name=settings.region,
        endpoint_url=settings.sts_endpoint or None,
        aws_access_key_id=own.access_key,
        aws_secret_access_key=own.secret_key,
        aws_session_token=own.session_token or None,
        verify=str(settings.ca_file) if settings.sts_endpoint and settings.ca_file else None,
    )
    try:
        reply = client.assume_role(
            RoleArn=settings.role_arn,
            RoleSessionName=f"broker-{job_id}"[:64],
            DurationSeconds=life_s,
            Policy=json.dumps(session_policy(settings, job_id), separators=(",", ":")),
        )
    except (ClientError, BotoCoreError) as error:
        raise StoreError(
            f"no keys for job {job_id} from STS: {error}; check store.role_arn and its trust"
        ) from error
    keys: Mapping[str, str] = reply["Credentials"]
    return keys


def _variable(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "")
    if not value:
        raise SettingsError(
            f"the checkpoint store's key is expected in the variable {name}, which is not set"
        )
    return value


def _read_ca(path: Path | None) -> str:
    if path is None:
        return ""
    return read_text(path.expanduser(), SettingsError, hint="it is ca_file of [store]")
