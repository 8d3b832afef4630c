"""Entra ID: the description of a tenant's end points, and tokens for the secret of one application.

Everything here lives on real time, whatever the lab's clock says.
"""

import secrets
import threading
import time
from dataclasses import dataclass
from urllib.parse import parse_qsl

from lab.faces import Reply, Request
from lab.faces.azure_errors import unauthenticated

LIFE_S = 3600
SCOPE = "https://management.azure.com/.default"


@dataclass(frozen=True)
class Account:
    """Who may call.

    Attributes:
        tenant: Of the directory.
        subscription: That the application may read.
        client_id: Of the application.
    """

    tenant: str
    subscription: str
    client_id: str
    client_secret: str


class Tokens:
    """Tokens of one application."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._issued: dict[str, float] = {}
        self._lock = threading.Lock()

    def handles(self, path: str) -> bool:
        """Whether a path is Entra ID's."""
        return path.endswith(("/oauth2/v2.0/token", "/v2.0/.well-known/openid-configuration"))

    def answer(self, request: Request, expired: bool = False) -> Reply:
        """A description of the end points, or a token.

        Args:
            expired: The secret is past its date.
        """
        base, tenant = f"https://{request.headers.get('host', '')}", request.path.strip("/").partition("/")[0]
        if tenant != self._account.tenant:
            return _refused(400, "invalid_tenant", f"AADSTS90002: Tenant '{tenant}' not found.")
        if request.method == "GET":
            return Reply.of_json(
                {
                    "authorization_endpoint": f"{base}/{tenant}/oauth2/v2.0/authorize",
                    "token_endpoint": f"{base}/{tenant}/oauth2/v2.0/token",
                    "issuer": f"{base}/{tenant}/v2.0",
                }
            )
        form = dict(parse_qsl(request.body.decode("utf-8", "replace")))
        if form.get("grant_type") != "client_credentials" or form.get("scope") != SCOPE:
            return _refused(400, "invalid_request", "AADSTS900144: The request body is not as expected.")
        if form.get("client_id") != self._account.client_id:
            return _refused(
                400, "unauthorized_client", "AADSTS700016: Application was not found in the directory."
            )
        if expired:
            return _refused(
                401, "invalid_client", "AADSTS7000222: The provided client secret keys are expired."
            )
        if form.get("client_secret") != self._account.client_secret:
            return _refused(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
        token = secrets.token_urlsafe(60)
        with self._lock:
            self._issued[token] = time.time() + LIFE_S
        lives = {"expires_in": LIFE_S - 1, "ext_expires_in": LIFE_S - 1}
        return Reply.of_json({"token_type": "Bearer", **lives, "access_token": token})

    def check(self, request: Request) -> None:
        """That the request carries a token that we issued.

        Raises:
            ArmError: none, or one that is not good.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer":
            raise unauthenticated("AuthenticationFailed")
        with self._lock:
            expires = self._issued.get(token)
        if expires is None:
            raise unauthenticated()
        if expires < time.time():
            raise unauthenticated("ExpiredAuthenticationToken")


def _refused(status: int, error: str, description: str) -> Reply:
    codes = [int(description.partition(":")[0].removeprefix("AADSTS"))]
    return Reply.of_json({"error": error, "error_description": description, "error_codes": codes}, status)
