"""The checkpoint store as node and daemon see it: whole objects, and compare-and-swap on one of them.

There is no multipart, no append and no rename: everything but HEAD is immutable and small enough for one PUT.
"""

from typing import List, Optional, Protocol, Tuple

from broker.wire.errors import StoreFailed
from broker.wire.folder_store import FolderStore
from broker.wire.messages import StoreAccess
from broker.wire.s3_sign import Keys
from broker.wire.s3_store import S3Store


class ObjectStore(Protocol):
    """Whole objects by key. Thread-safe; every method blocks.

    Raises, all of them:
        StoreFailed: the store refused, or could not be reached after bounded retries.
    """

    def get(self, key: str) -> Optional[Tuple[bytes, str]]:
        """Content and etag, of one and the same write; None when there is no such object."""

    def put(self, key: str, data: bytes, if_match: Optional[str] = None, if_absent: bool = False) -> str:
        """Write the object, whole or not at all; the answer is its etag.

        Without a condition it may be sent more than once, so such a key must always get the same bytes.

        Args:
            if_match: Only if the object still has this etag.
            if_absent: Only if there is no object.

        Raises:
            PreconditionFailed: the condition did not hold; nothing was written.
            UnknownWrite: a conditional write whose reply was lost.
        """

    def delete(self, key: str) -> None:
        """Remove the object. No error when there is none."""

    def list(self, prefix: str) -> List[Tuple[str, int]]:
        """Every key that starts with `prefix`, with its size in bytes, sorted by key."""

    def folders(self, prefix: str) -> List[str]:
        """What lies between `prefix` (which ends in a slash) and the next slash, over all keys; sorted."""


def open_store(access: StoreAccess) -> ObjectStore:
    """The store that the daemon described. Nothing is sent yet.

    Raises:
        StoreFailed: the description is not usable.
    """
    if access.kind == "folder":
        if not access.path:
            raise StoreFailed("checkpoint store of kind `folder` without a path")
        return FolderStore(access.path)
    if access.kind == "s3":
        if not access.endpoint or not access.bucket:
            raise StoreFailed("checkpoint store of kind `s3` needs an endpoint and a bucket")
        keys = Keys(access.access_key, access.secret_key, access.session_token)
        return S3Store(access.endpoint, access.bucket, keys, access.region, access.ca_pem)
    raise StoreFailed(f"checkpoint store of kind {access.kind!r} is not known; known are `s3` and `folder`")
