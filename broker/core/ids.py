"""Names of things. Randomness comes in through `broker.core.ports.Ids`; this module only shapes it."""

import re
import uuid

_NODE_TOKEN = re.compile(r"^bk-[a-z2-7]{26}-\d{1,3}$")
_SLUG = re.compile(r"[^a-z0-9]+")

# uuid5 needs a namespace; this one is ours alone and must never change, or a retried create after an
# upgrade would carry another request id and buy a second node.
_REQUEST_NAMESPACE = uuid.UUID("6f1d9a52-4c35-5d43-9a5e-2f3b8d5c7e10")


def node_token(base32_26: str, rank: int) -> str:
    """The token of one node: a DNS label that is also its name where a cloud wants names.

    Raises:
        ValueError: the random part or the rank is out of shape.
    """
    token = f"bk-{base32_26.lower()}-{rank}"
    if not is_node_token(token):
        raise ValueError(f"{token!r} is not a node token")
    return token


def is_node_token(text: str) -> bool:
    """Whether a cloud's tag or name can be one of ours at all."""
    return _NODE_TOKEN.fullmatch(text) is not None


def request_id(token: str) -> str:
    """The UUID that clouds want as request id, derived from the token: resent, it is the same."""
    return str(uuid.uuid5(_REQUEST_NAMESPACE, token))


def slug(text: str, limit: int = 40) -> str:
    """A name as lower-case letters, digits and single dashes."""
    return _SLUG.sub("-", text.lower()).strip("-")[:limit].rstrip("-") or "job"
