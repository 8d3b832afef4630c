"""AWS Signature Version 4, as much as S3 needs: one request, headers signed, payload hashed.

Source: docs.aws.amazon.com, "Signature Calculations for the Authorization Header: Transferring Payload in a
Single Chunk (AWS Signature Version 4)". The published examples of that page are the unit tests.
"""

import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class Keys:
    """Who signs.

    Attributes:
        session_token: Of short-lived keys; empty for static ones.
    """

    access_key: str
    secret_key: str
    session_token: str = ""


def quote_path(path: str) -> str:
    """A path as S3 wants it signed and sent: every byte quoted once but the unreserved ones and ``/``."""
    return quote(path, safe="/-_.~")


def quote_query(query: Sequence[Tuple[str, str]]) -> str:
    """A query string as it is signed and sent: sorted, every byte quoted but the unreserved ones."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    return "&".join(f"{name}={value}" for name, value in pairs)


def sign(
    keys: Keys,
    method: str,
    host: str,
    path: str,
    query: Sequence[Tuple[str, str]] = (),
    headers: Optional[Mapping[str, str]] = None,
    payload_sha256: str = EMPTY_SHA256,
    region: str = "us-east-1",
    at: Optional[time.struct_time] = None,
) -> Dict[str, str]:
    """All headers to send, ``Authorization`` and ``Host`` among them.

    Args:
        host: As in the ``Host`` header, with the port where it is not the scheme's own.
        path: Not yet quoted.
        at: UTC; now, if None. A server refuses a clock that is 15 minutes off.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", at or time.gmtime())
    signed = {name.lower(): " ".join(value.split()) for name, value in (headers or {}).items()}
    signed.update({"host": host, "x-amz-date": moment, "x-amz-content-sha256": payload_sha256})
    if keys.session_token:
        signed["x-amz-security-token"] = keys.session_token
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [method, quote_path(path), quote_query(query)]
        + [f"{name}:{signed[name]}" for name in sorted(signed)]
        + ["", names, payload_sha256]
    )
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    signed["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed
