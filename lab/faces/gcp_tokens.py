"""Who calls: access tokens, and the signed assertions of a service account that are traded for them.

Everything here lives on real time, whatever the lab's clock says.
"""

import base64
import json
import secrets
import threading
import time
from typing import Any
from urllib.parse import parse_qsl

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from lab.faces import Reply, Request
from lab.faces.gcp_errors import unauthenticated

LIFE_S = 3600
MAX_SKEW_S = 300
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Tokens:
    """Tokens of one service account.

    Args:
        account: Its e-mail address.
        public_key_pem: Of its key.
    """

    def __init__(self, account: str, public_key_pem: str) -> None:
        key = load_pem_public_key(public_key_pem.encode())
        assert isinstance(key, RSAPublicKey), "Google's service accounts have RSA keys"
        self._key = key
        self._account = account
        self._issued: dict[str, float] = {}
        self._lock = threading.Lock()

    def caller(self, request: Request) -> str:
        """Whose token the request carries: one that we issued, or one that the account signed itself.

        Raises:
            GcpError: none of these, or expired.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer":
            raise unauthenticated()
        with self._lock:
            expires = self._issued.get(token)
        if expires is not None:
            if expires < time.time():
                raise unauthenticated()
            return self._account
        claims = self._claims(token)
        if claims is None or not (claims.get("scope") or _is_api(str(claims.get("aud", "")))):
            raise unauthenticated()
        return self._account

    def exchange(self, request: Request) -> Reply:
        """``POST /token``: an assertion for an access token (RFC 7523)."""
        form = dict(parse_qsl(request.body.decode("utf-8", "replace")))
        if form.get("grant_type") != GRANT:
            return _refused("unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type')}")
        claims = self._claims(form.get("assertion", ""))
        if claims is None:
            return _refused("invalid_grant", "Invalid JWT Signature.")
        here = f"https://{request.headers.get('host', '')}/token"
        if claims.get("aud") not in (here, "https://oauth2.googleapis.com/token"):
            return _refused("invalid_grant", "Invalid JWT: Failed audience check.")
        token = f"ya29.{secrets.token_urlsafe(40)}"
        with self._lock:
            self._issued[token] = time.time() + LIFE_S
        return Reply.of_json({"access_token": token, "expires_in": LIFE_S - 1, "token_type": "Bearer"})

    def _claims(self, token: str) -> dict[str, Any] | None:
        """Of an assertion that this account signed and that has not expired."""
        try:
            head, body, signature = token.split(".")
            if json.loads(_decoded(head)).get("alg") != "RS256":
                return None
            self._key.verify(_decoded(signature), f"{head}.{body}".encode(), PKCS1v15(), SHA256())
            claims: dict[str, Any] = json.loads(_decoded(body))
            fresh = claims["iat"] - MAX_SKEW_S <= time.time() < claims["exp"] <= claims["iat"] + LIFE_S
        except (ValueError, KeyError, TypeError, InvalidSignature):
            return None
        return claims if fresh and claims.get("iss") == self._account else None


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _is_api(audience: str) -> bool:
    return audience.startswith("https://") and audience.endswith(".googleapis.com/")


def _refused(error: str, description: str) -> Reply:
    return Reply.of_json({"error": error, "error_description": description}, 400)
