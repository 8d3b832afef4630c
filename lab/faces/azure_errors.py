"""How Microsoft's services word their refusals: the price list, the resource manager and Entra ID each in their way."""

from typing import Any

from lab.faces import Reply
from lab.faults import FaultKind

RETRY_AFTER_S = 7


class RetailError(Exception):
    """An error of the price list."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message

    def reply(self) -> Reply:
        """As it is sent."""
        document = {"Error": {"Code": str(self.status), "Message": self.message}}
        return _of_json(document, self.status)


class ArmError(Exception):
    """An error of the resource manager."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message

    def reply(self) -> Reply:
        """As it is sent."""
        return _of_json({"error": {"code": self.code, "message": self.message}}, self.status)


def _of_json(document: dict[str, Any], status: int) -> Reply:
    reply = Reply.of_json(document, status)
    more = {
        429: {"Retry-After": str(RETRY_AFTER_S)},
        401: {"WWW-Authenticate": 'Bearer error="invalid_token"'},
    }
    return Reply(status, reply.body, {**reply.headers, **more.get(status, {})})


def unauthenticated(code: str = "InvalidAuthenticationToken") -> ArmError:
    """No token, an expired one, or one that is not ours."""
    text = {
        "AuthenticationFailed": "Authentication failed. The 'Authorization' header is missing.",
        "ExpiredAuthenticationToken": "The access token expiry UTC time is earlier than the current UTC time.",
        "InvalidAuthenticationToken": "The access token is invalid.",
    }
    return ArmError(401, code, text[code])


def arm_refusal(operation: str, kind: FaultKind) -> ArmError | None:
    """How a fault of the resource manager is worded; None for what is no refusal."""
    if kind is FaultKind.EXPIRED:
        return unauthenticated("ExpiredAuthenticationToken")
    if kind is FaultKind.DENIED:
        text = f"The client does not have authorization to perform action '{operation}'."
        return ArmError(403, "AuthorizationFailed", text)
    if kind is FaultKind.THROTTLE:
        graph = operation == "Resources"
        text = (
            "Please provide below info when asking for support."
            if graph
            else "The request is being throttled."
        )
        return ArmError(429, "RateLimiting" if graph else "TooManyRequests", text)
    if kind is FaultKind.HTTP_500:
        return ArmError(500, "InternalServerError", "An internal server error occurred.")
    return None


def retail_refusal(kind: FaultKind) -> RetailError | None:
    """How a fault of the price list is worded; None for what is no refusal."""
    if kind is FaultKind.THROTTLE:
        return RetailError(429, "Too many requests. Please try again later.")
    if kind is FaultKind.HTTP_500:
        return RetailError(500, "An error has occurred.")
    if kind in (FaultKind.DENIED, FaultKind.EXPIRED):
        return RetailError(403, "Forbidden")
    return None
